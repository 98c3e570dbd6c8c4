// What the lines of a job on stderr tell its supervisor: pure.
#pragma once

#include <string>
#include <string_view>

namespace zeepo {

class JobLines {
 public:
  // Any part of the text, as it comes.
  void add(std::string_view text);

  bool any() const { return any_; }
  // A rank or a host was lost: the line that said so first. Empty: nobody said so.
  const std::string& loss() const { return loss_; }
  // It has lost a rank for certain, and does nothing more but end.
  bool ending() const { return ending_; }
  // The run before still has --checkpoint-dir: on a host that was cut off its ranks may live some seconds longer.
  bool directory_taken() const { return directory_taken_; }

 private:
  void look_at(std::string_view line);

  std::string line_;
  bool any_ = false, ending_ = false, directory_taken_ = false;
  std::string loss_;
};

}  // namespace zeepo
