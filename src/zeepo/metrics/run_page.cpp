#include "zeepo/metrics/run_page.h"

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

// The frame with its holes filled. Text that was filled in is not looked at again.
std::string filled(const std::string& title, std::string_view data) {
  const std::string safe_title = html_of(title);
  const std::pair<std::string_view, std::string_view> holes[] = {
      {"{TITLE}", safe_title}, {"{STYLE}", page_style()}, {"{DATA}", data}, {"{SCRIPT}", page_script()}};
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

}  // namespace

std::string run_page(const std::string& title, const RunHistory& history) { return filled(title, history.json()); }

std::string live_page(const std::string& title) { return filled(title, "null"); }

}  // namespace zeepo
