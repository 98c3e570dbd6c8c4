// The page that shows a run in plots: one HTML file with all it needs. Its parts are in page/.
#pragma once

#include <string>
#include <string_view>

#include "zeepo/metrics/run_history.h"

namespace zeepo {

// A run as it is.
std::string run_page(const std::string& title, const RunHistory& history);
// A run that goes on: the page asks for `data` beside it, which is RunHistory::json.
std::string live_page(const std::string& title);

// The texts of page/.
std::string_view page_frame();
std::string_view page_style();
std::string_view page_script();

}  // namespace zeepo
