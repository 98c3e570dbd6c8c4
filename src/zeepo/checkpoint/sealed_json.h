// JSON objects that carry their own checksum: a byte that changes anywhere in the text is found.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace zeepo {

// 16 hexadecimal digits.
std::string checksum_of(std::span<const std::byte> bytes);
std::string checksum_text(std::uint64_t sum);

// {"checksum":"...", and the object's own fields.
std::string seal(const nlohmann::ordered_json& object);
// Throws Error starting with `what` for text that seal() has not made.
nlohmann::json open_sealed(std::string_view text, const std::string& what);

}  // namespace zeepo
