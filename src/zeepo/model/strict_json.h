// JSON from files that anyone may have written: one place that refuses what could hurt or mislead.
//
// Every fault is an Error that starts with `what` (the file's path). A repeated key, nesting deeper than kMaxJsonDepth,
// invalid UTF-8, NaN and numbers past a double's range are faults.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace zeepo {

inline constexpr int kMaxJsonDepth = 64;

// Throws unless the text is one JSON object.
nlohmann::json parse_json_object(std::string_view text, const std::string& what);

// A name or value from such a file, quoted, escaped and cut short, fit for an error message.
std::string shown(std::string_view text);
std::string shown_json(const nlohmann::json& value);

}  // namespace zeepo
