#include "zeepo/metrics/tensorboard_file.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "zeepo/metrics/crc32c.h"
#include "zeepo/metrics/event_numbers.h"
#include "zeepo/metrics/named_error.h"
#include "zeepo/metrics/proto_writer.h"

namespace zeepo {
namespace {

// Fields of tensorflow.Event, Summary, Summary.Value and SessionLog.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr int kSummaryValue = 1, kValueTag = 1, kSimpleValue = 2, kStatus = 1;
constexpr int kStatusStart = 1;
constexpr std::int64_t kMostSeconds = 9'999'999'998;  // of ten digits

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The seconds in the name of the newest event file; 0 where there is none.
std::int64_t newest_in(const std::filesystem::path& directory) {
  std::int64_t newest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    std::int64_t seconds = 0;
    if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), seconds);
    newest = std::max(newest, std::min(seconds, kMostSeconds));
  }
  return newest;
}

// TensorBoard reads the files of a directory in the order of their names, which begin with the time in seconds: two
// runs in the same second, or a clock that was set back, must not change it.
std::filesystem::path path_in(const std::filesystem::path& directory) {
  char host[256] = "localhost";
  if (::gethostname(host, sizeof host) != 0) std::snprintf(host, sizeof host, "localhost");
  host[sizeof host - 1] = '\0';
  std::filesystem::create_directories(directory);
  const std::int64_t seconds = std::max(static_cast<std::int64_t>(wall_time()), newest_in(directory) + 1);
  return directory / fmt::format("{}{:010}.{}.{}.0", kPrefix, seconds, std::string_view(host), ::getpid());
}

std::string event_at(std::int64_t step, int field, const ProtoWriter& message) {
  ProtoWriter event;
  event.number(kWallTime, wall_time());
  event.whole(kStep, step);
  event.bytes(field, message.bytes());
  return tf_record(event.bytes());
}

std::string file_begin() {
  ProtoWriter event;
  event.number(kWallTime, wall_time());
  event.bytes(kFileVersion, "brain.Event:2");
  return tf_record(event.bytes());
}

std::string session_start(std::int64_t step) {
  ProtoWriter session;
  session.whole(kStatus, kStatusStart);
  return event_at(step, kSessionLog, session);
}

std::string scalars_of(const Event& event, const std::string& prefix) {
  ProtoWriter summary;
  for (const EventNumber& number : numbers_of(event, '/')) {
    ProtoWriter value;
    value.bytes(kValueTag, prefix + number.name);
    value.number(kSimpleValue, static_cast<float>(number.number()));
    summary.bytes(kSummaryValue, value.bytes());
  }
  return event_at(step_of(event), kSummary, summary);
}

}  // namespace

std::string tf_record(std::string_view payload) {
  std::string record;
  append_little_endian(record, payload.size(), 8);
  append_little_endian(record, masked_crc32c(record), 4);
  record += payload;
  append_little_endian(record, masked_crc32c(payload), 4);
  return record;
}

TensorBoardFile::TensorBoardFile(const std::filesystem::path& directory)
    : directory_(directory),
      path_(named_by(name(), [&] { return path_in(directory); })),
      file_(named_by(name(), [&] { return GrowingFile(path_, GrowingFile::Mode::fresh); })) {
  named_by(name(), [&] { file_.write(file_begin()); });
}

void TensorBoardFile::write(const Event& event) {
  const std::string kind = kind_of(event);
  if (kind == "eval") return file_.write(scalars_of(event, "eval/"));
  if (kind != "step") return;
  const std::int64_t step = step_of(event);
  const bool begins = last_step_ == 0 || step <= last_step_;
  last_step_ = step;
  file_.write((begins ? session_start(step) : "") + scalars_of(event, ""));
}

}  // namespace zeepo
