#include "zeepo/metrics/html_page.h"

#include <utility>

namespace zeepo {
namespace {

std::string html_of(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

// The frame with its holes filled. Text that was filled in is not looked at again.
std::string html_page(const std::string& title, const PageScript& content) {
  const std::string safe_title = html_of(title);
  const std::pair<std::string_view, std::string_view> holes[] = {
      {"{TITLE}", safe_title},  {"{STYLE}", page_style()}, {"{BASE}", page_base()},
      {"{NAME}", content.name}, {"{DATA}", content.data},  {"{SCRIPT}", content.script}};
  std::string page;
  for (std::string_view frame = page_frame(); !frame.empty();) {
    std::size_t next = frame.size(), length = 0;
    std::string_view text;
    for (const auto& hole : holes)
      if (const std::size_t at = frame.find(hole.first); at < next) {
        next = at;
        length = hole.first.size();
        text = hole.second;
      }
    page.append(frame.substr(0, next)).append(text);
    frame.remove_prefix(next + length);
  }
  return page;
}

std::string page_json(const nlohmann::ordered_json& json) {
  std::string text = json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace), safe;
  for (const char c : text) safe += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return safe;
}

}  // namespace zeepo
