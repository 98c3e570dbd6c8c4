// Text as it is made, cut before the first stop string. What may be the beginning of a stop string is held back until
// it is known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeepo {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What of all the text so far can be told now. After a stop string nothing more comes.
  std::string push(std::string_view piece);
  // The text is whole: what was held back.
  std::string finish();
  bool met() const { return met_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool met_ = false;
};

}  // namespace zeepo
