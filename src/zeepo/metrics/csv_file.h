// `--csv FILE`: a row a step, under a header of names. A nested field is named with dots: memory.host.total.
//
// The columns are those of the first step, or of the file that is appended to. A field that a step lacks is empty; a
// number that JSON has not is nan.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "zeepo/metrics/event_sink.h"
#include "zeepo/metrics/growing_file.h"

namespace zeepo {

class CsvFile final : public EventSink {
 public:
  // Throws Error when the file cannot be made, or when it is to be appended to and has no such header.
  CsvFile(const std::filesystem::path& path, GrowingFile::Mode mode);
  std::string name() const override { return "--csv " + path_.string(); }
  void write(const Event& event) override;

 private:
  std::filesystem::path path_;
  std::vector<std::string> columns_;  // empty: the header is still to be written
  GrowingFile file_;
};

}  // namespace zeepo
