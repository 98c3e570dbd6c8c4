// A page that is one file with all it needs: style, data and the script that draws the data. The common parts are in
// page/.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace zeepo {

struct PageScript {
  std::string_view name;    // of the constant that the script reads
  std::string_view data;    // its value: JSON as page_json() gives it
  std::string_view script;  // after what base.js has
};
std::string html_page(const std::string& title, const PageScript& content);

// Where JSON stands in a page's <script>, "</script>" must not end it.
std::string page_json(const nlohmann::ordered_json& json);

// The texts of page/.
std::string_view page_frame();
std::string_view page_style();
std::string_view page_base();

}  // namespace zeepo
