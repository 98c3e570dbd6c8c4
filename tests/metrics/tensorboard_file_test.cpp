#include "zeepo/metrics/tensorboard_file.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "tests/metrics/events.h"
#include "tests/support/errors.h"
#include "tests/support/subprocess.h"
#include "zeepo/metrics/crc32c.h"

namespace zeepo {
namespace {

// A message of protocol buffers, field by field: what a field's varint or bytes are.
struct Field {
  int number = 0, wire_type = 0;
  std::uint64_t value = 0;
  std::string bytes;
};

std::uint64_t take_varint(std::string_view& text) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(text.at(0));
    text.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  throw Error("a varint without an end");
}

std::uint64_t take_fixed(std::string_view& text, std::size_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, text.substr(0, bytes).data(), bytes);
  text.remove_prefix(bytes);
  return value;
}

std::vector<Field> fields_of(std::string_view text) {
  std::vector<Field> fields;
  while (!text.empty()) {
    const std::uint64_t key = take_varint(text);
    Field field{static_cast<int>(key >> 3), static_cast<int>(key & 7), 0, ""};
    if (field.wire_type == 0) field.value = take_varint(text);
    if (field.wire_type == 1) field.value = take_fixed(text, 8);
    if (field.wire_type == 5) field.value = take_fixed(text, 4);
    if (field.wire_type == 2) {
      const std::uint64_t size = take_varint(text);
      field.bytes = std::string(text.substr(0, size));
      EXPECT_EQ(field.bytes.size(), size);
      text.remove_prefix(size);
    }
    fields.push_back(field);
  }
  return fields;
}

struct Decoded {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;
  int status = 0;
  std::map<std::string, float> scalars;
};

Decoded decoded(std::string_view record) {
  Decoded event;
  for (const Field& field : fields_of(record)) {
    if (field.number == 1) event.wall_time = std::bit_cast<double>(field.value);
    if (field.number == 2) event.step = static_cast<std::int64_t>(field.value);
    if (field.number == 3) event.version = field.bytes;
    if (field.number == 7) event.status = static_cast<int>(fields_of(field.bytes).at(0).value);
    if (field.number != 5) continue;
    for (const Field& value : fields_of(field.bytes)) {
      const auto parts = fields_of(value.bytes);
      EXPECT_EQ(parts.at(1).wire_type, 5);
      event.scalars[parts.at(0).bytes] = std::bit_cast<float>(static_cast<std::uint32_t>(parts.at(1).value));
    }
  }
  return event;
}

// Every record of the file, lengths and both checksums verified.
std::vector<Decoded> read_events(const std::filesystem::path& path) {
  const std::string file = whole_file(path);
  std::string_view text = file;
  std::vector<Decoded> events;
  while (!text.empty()) {
    const std::string_view header = text.substr(0, 8);
    const std::uint64_t size = take_fixed(text, 8);
    EXPECT_EQ(take_fixed(text, 4), masked_crc32c(header));
    const std::string_view payload = text.substr(0, size);
    EXPECT_EQ(payload.size(), size);
    text.remove_prefix(size);
    EXPECT_EQ(take_fixed(text, 4), masked_crc32c(payload));
    events.push_back(decoded(payload));
  }
  return events;
}

TEST(Crc32c, IsCastagnoli) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);  // the check value of the polynomial
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(masked_crc32c("123456789"), ((0xe3069283u >> 15) | (0xe3069283u << 17)) + 0xa282ead8u);
}

TEST(TensorBoardFile, HasEveryNumberOfEachStep) {
  const TestDirectory directory;
  TensorBoardFile file(directory.path() / "a" / "b");
  for (const Event& event :
       {Event{{"event", "plan"}, {"params", 3}}, step_event(1, 1.5), step_event(300, 0.1f), eval_event(300, 2.25)})
    file.write(event);
  const auto events = read_events(file.path());
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].status, 1);  // the run begins
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_GT(events[2].wall_time, 1.7e9);
  EXPECT_EQ(events[3].step, 300);
  EXPECT_EQ(events[3].scalars.at("loss"), 0.1f);
  EXPECT_EQ(events[3].scalars.at("grad_norm"), 0.3f);
  EXPECT_EQ(events[3].scalars.at("tokens_per_second"), 128);
  EXPECT_EQ(events[3].scalars.at("stall_seconds/host"), 0.125f);
  EXPECT_EQ(events[3].scalars.at("memory/device/total"), 1007);
  EXPECT_EQ(events[3].scalars.size(), 7u + 4 + 18);
  EXPECT_EQ(events[4].scalars, (std::map<std::string, float>{{"eval/loss", 2.25f}}));
}

TEST(TensorBoardFile, SaysWhereARunBeginsAgain) {
  const TestDirectory directory;
  TensorBoardFile file(directory.path());
  Event not_a_number = step_event(4);
  not_a_number["loss"] = nullptr;
  for (const Event& event : {step_event(4), step_event(5), not_a_number}) file.write(event);
  const auto events = read_events(file.path());
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[1].status, 1);
  EXPECT_EQ(events[1].step, 4);
  EXPECT_EQ(events[3].status, 0);
  EXPECT_EQ(events[4].status, 1);  // back to step 4
  EXPECT_EQ(events[4].step, 4);
  EXPECT_TRUE(std::isnan(events[5].scalars.at("loss")));
  const auto second = TensorBoardFile(directory.path()).path(), third = TensorBoardFile(directory.path()).path();
  EXPECT_LT(file.path(), second);  // the order in which TensorBoard reads them
  EXPECT_LT(second, third);
}

TEST(TensorBoardFile, APlaceThatCannotBeMadeIsNamed) {
  const TestDirectory directory;
  const auto file = directory.write("file", "");
  EXPECT_TRUE(names(error_text([&] { TensorBoardFile{file / "runs"}; }), "--tensorboard", "runs"));
}

}  // namespace
}  // namespace zeepo
