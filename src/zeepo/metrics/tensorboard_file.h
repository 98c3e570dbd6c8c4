// `--tensorboard DIR`: an event file for TensorBoard, with a scalar for each number of a step and of an evaluation.
//
// A step's numbers have the names of the log (loss, memory/host/total), an evaluation's begin with eval/. Every run
// writes a file of its own. Where it begins, or goes back to an earlier step, it says so in the file, and TensorBoard
// leaves out what earlier files of the directory have from this step on.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "zeepo/metrics/event_sink.h"
#include "zeepo/metrics/growing_file.h"

namespace zeepo {

class TensorBoardFile final : public EventSink {
 public:
  // Makes the directory too. Throws Error when it cannot.
  explicit TensorBoardFile(const std::filesystem::path& directory);
  std::string name() const override { return "--tensorboard " + directory_.string(); }
  void write(const Event& event) override;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path directory_, path_;
  GrowingFile file_;
  std::int64_t last_step_ = 0;  // 0: none yet
};

// A record of a TFRecord file: length, payload, and the masked CRC of each.
std::string tf_record(std::string_view payload);

}  // namespace zeepo
