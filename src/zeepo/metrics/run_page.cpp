#include "zeepo/metrics/run_page.h"

#include "zeepo/metrics/html_page.h"

namespace zeepo {
namespace {

std::string page_with(const std::string& title, std::string_view data) {
  return html_page(title, {.name = "zeepoRun", .data = data, .script = run_script()});
}

}  // namespace

std::string run_page(const std::string& title, const RunHistory& history) { return page_with(title, history.json()); }

std::string live_page(const std::string& title) { return page_with(title, "null"); }

}  // namespace zeepo
