// Plans for people: tables of at most 80 columns.
#pragma once

#include <string>
#include <vector>

#include "zeepo/plan/recommended.h"
#include "zeepo/plan/textbook.h"
#include "zeepo/plan/textbook_choice.h"

namespace zeepo {

// Three digits: "1.83 TiB", "17.5 GiB", "735 MiB".
std::string short_size(std::int64_t bytes);
std::string size_or_dash(std::int64_t bytes);  // of nothing a dash
// "device: 51.3 GiB short", of the first tier that is too small.
std::string missing_text(const PlaceBytes& missing);
// "device 37.2 GiB of 37.3 GiB, host 8.92 GiB of 55.9 GiB".
std::string tiers_text(const PlaceBytes& bytes, const PlaceBytes& budgets);
// "6.93M", "12.5k", "408", "3.21".
std::string short_rate(double rate);
// "18.2 ms", "1.93 s", "4844 s".
std::string short_seconds(double seconds);
// As short_size, of 1000: "31.4 GB", as the ZeRO paper prints.
std::string short_decimal_size(std::int64_t bytes);
// "7.50B".
std::string short_count(std::int64_t count);

// As a shell takes it.
std::string quoted(const std::string& text);
// Words over lines of at most 80 columns, all but the first with this indent.
std::string wrapped(const std::string& text, const std::string& indent);
// Long commands over several lines that a shell takes as one.
std::string folded(const std::string& command);

std::string text_of(const Textbook& textbook);
std::string text_of(const TextbookChoice& choice, const Textbook& textbook);
std::string text_of(const std::vector<ExactPlan>& plans);
// Why the plan of this stage with everything on the device is not the textbook's.
std::string difference_text(const ExactPlan& plan, const RunSetup& setup, const Textbook& textbook);
std::string text_of(const Recommended& recommended, const OptionTexts& given);

}  // namespace zeepo
