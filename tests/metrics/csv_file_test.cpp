#include "zeepo/metrics/csv_file.h"

#include <sstream>

#include "tests/metrics/events.h"
#include "tests/support/errors.h"
#include "tests/support/subprocess.h"

namespace zeepo {
namespace {

using Mode = GrowingFile::Mode;

std::vector<std::vector<std::string>> rows_of(const std::filesystem::path& path) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(whole_file(path));
  for (std::string line; std::getline(lines, line);) {
    rows.emplace_back();
    std::istringstream cells(line + ",");
    for (std::string cell; std::getline(cells, cell, ',');) rows.back().push_back(cell);
  }
  return rows;
}

std::string cell(const std::vector<std::vector<std::string>>& rows, std::size_t row, const std::string& column) {
  for (std::size_t i = 0; i < rows[0].size(); ++i)
    if (rows[0][i] == column) return rows[row].at(i);
  return "no such column";
}

TEST(CsvFile, HasARowForEachStep) {
  const TestDirectory directory;
  const auto path = directory.path() / "run.csv";
  CsvFile file(path, Mode::fresh);
  Event not_a_number = step_event(2);
  not_a_number["loss"] = nullptr;
  Event scaled = step_event(3);
  scaled["loss_scale"] = 1024.0;
  scaled["skipped"] = true;
  for (const Event& event : {step_event(1, 1.0 / 3), eval_event(1, 3), not_a_number, scaled}) file.write(event);
  const auto rows = rows_of(path);
  ASSERT_EQ(rows.size(), 4u);
  for (const auto& row : rows) EXPECT_EQ(row.size(), rows[0].size());
  EXPECT_EQ(rows[0][0], "step");
  EXPECT_EQ(std::stod(cell(rows, 1, "loss")), 1.0 / 3);  // to the bit
  EXPECT_EQ(std::stod(cell(rows, 1, "grad_norm")), 0.1 + 0.2);
  EXPECT_EQ(cell(rows, 1, "stall_seconds.host"), "0.125");
  EXPECT_EQ(cell(rows, 1, "memory.device.total"), "1007");
  EXPECT_EQ(cell(rows, 1, "loss_scale"), "");
  EXPECT_EQ(cell(rows, 2, "loss"), "nan");
  EXPECT_EQ(cell(rows, 3, "loss_scale"), "1024.0");
  EXPECT_EQ(cell(rows, 3, "skipped"), "1");
}

TEST(CsvFile, GoesOnBehindWhatAKilledRunHasLeft) {
  const TestDirectory directory;
  const auto path = directory.path() / "run.csv";
  CsvFile(path, Mode::append_lines).write(step_event(1));  // a new file
  std::ofstream(path, std::ios::app) << "2,1.5,0.";        // killed while it wrote
  CsvFile(path, Mode::append_lines).write(step_event(2));
  const auto rows = rows_of(path);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1][0], "1");
  EXPECT_EQ(rows[2][0], "2");
  EXPECT_EQ(rows[2].size(), rows[0].size());
  CsvFile(path, Mode::fresh).write(step_event(7));
  EXPECT_EQ(rows_of(path).size(), 2u);
}

TEST(CsvFile, FollowsTheColumnsThatAreThere) {
  const TestDirectory directory;
  const auto path = directory.write("run.csv", "loss,step,other\r\n9,1,2\r\n");
  CsvFile(path, Mode::append_lines).write(step_event(2, 4));
  EXPECT_TRUE(whole_file(path).ends_with("\n4.0,2,\n")) << whole_file(path);
}

TEST(CsvFile, OfAnotherKindIsNotAppendedTo) {
  const TestDirectory directory;
  const auto log = directory.write("run.jsonl", "{\"event\":\"plan\"}\n");
  EXPECT_TRUE(names(error_text([&] { CsvFile(log, Mode::append_lines); }), "--csv", "no column \"step\""));
  const auto endless = directory.write("zeros", std::string(1 << 17, '0'));
  EXPECT_TRUE(names(error_text([&] { CsvFile(endless, Mode::append_lines); }), "--csv", "no column \"step\""));
  EXPECT_TRUE(names(error_text([&] { CsvFile(directory.path(), Mode::append_lines); }), "--csv", "directory"));
  EXPECT_TRUE(
      names(error_text([&] { CsvFile(directory.path() / "no" / "x", Mode::fresh); }), "--csv", "cannot create"));
}

TEST(CsvFile, AFullDiskIsAnError) {
  CsvFile file("/dev/full", Mode::fresh);
  EXPECT_TRUE(names(error_text([&] { file.write(step_event(1)); }), "cannot write", "No space"));
}

}  // namespace
}  // namespace zeepo
