// The page that shows a run in plots: one HTML file with all it needs (html_page.h).
#pragma once

#include <string>
#include <string_view>

#include "zeepo/metrics/run_history.h"

namespace zeepo {

// A run as it is.
std::string run_page(const std::string& title, const RunHistory& history);
// A run that goes on: the page asks for `data` beside it, which is RunHistory::json.
std::string live_page(const std::string& title);

// The text of page/page.js.
std::string_view run_script();

}  // namespace zeepo
