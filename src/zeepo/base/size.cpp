#include "zeepo/base/size.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

struct Suffix {
  std::string_view name;
  double bytes;
};
constexpr std::array kSuffixes{
    Suffix{"", 1},         Suffix{"B", 1},        Suffix{"kB", 1e3},     Suffix{"KB", 1e3},
    Suffix{"MB", 1e6},     Suffix{"GB", 1e9},     Suffix{"TB", 1e12},    Suffix{"KiB", 0x1p10},
    Suffix{"MiB", 0x1p20}, Suffix{"GiB", 0x1p30}, Suffix{"TiB", 0x1p40},
};

}  // namespace

std::int64_t parse_size(std::string_view text) {
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  if (code == std::errc{} && std::isfinite(number) && number >= 0)
    for (const auto& known : kSuffixes)
      if (suffix == known.name && number * known.bytes < 0x1p63) return static_cast<std::int64_t>(number * known.bytes);
  throw Error("size \"{}\": write a number with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, like 512MiB or 1.5GB", text);
}

std::string format_size(std::int64_t bytes) {
  constexpr std::array<std::string_view, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t i = 0;
  while (std::abs(value) >= 1024 && i + 1 < names.size()) value /= 1024, ++i;
  return i == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, names[i]);
}

}  // namespace zeepo
