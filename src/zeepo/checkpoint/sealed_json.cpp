#include "zeepo/checkpoint/sealed_json.h"

#include <xxhash.h>

#include "zeepo/base/error.h"
#include "zeepo/model/strict_json.h"

namespace zeepo {
namespace {

constexpr std::string_view kBegin = R"({"checksum":")", kBetween = R"(",)", kEnd = "\n";
constexpr std::size_t kDigits = 16;

}  // namespace

std::string checksum_text(std::uint64_t sum) { return fmt::format("{:016x}", sum); }

std::string checksum_of(std::span<const std::byte> bytes) {
  return checksum_text(XXH3_64bits(bytes.data(), bytes.size()));
}

std::string seal(const nlohmann::ordered_json& object) {
  // Names of files may be no UTF-8: these bytes become U+FFFD.
  const std::string rest = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).substr(1);
  return fmt::format("{}{}{}{}{}", kBegin, checksum_of(std::as_bytes(std::span(rest))), kBetween, rest, kEnd);
}

nlohmann::json open_sealed(std::string_view text, const std::string& what) {
  const std::size_t before = kBegin.size() + kDigits + kBetween.size();
  if (text.size() < before + kEnd.size() || !text.starts_with(kBegin) || !text.ends_with(kEnd) ||
      text.substr(before - kBetween.size(), kBetween.size()) != kBetween)
    throw Error("{}: damaged: not the text of a checkpoint", what);
  const std::string_view rest = text.substr(before, text.size() - before - kEnd.size());
  const std::string_view said = text.substr(kBegin.size(), kDigits);
  if (const std::string found = checksum_of(std::as_bytes(std::span(rest))); found != said)
    throw Error("{}: damaged: its checksum is {}, not {} as it says", what, found, shown(said));
  return parse_json_object(fmt::format("{{{}", rest), what);
}

}  // namespace zeepo
