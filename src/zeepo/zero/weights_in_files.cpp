#include "zeepo/zero/weights_in_files.h"

#include <algorithm>

namespace zeepo {
namespace {

// Whether `next` goes on where `part` ends, in the file and at the destination.
bool continues(const FilePart& part, const FilePart& next) {
  return part.file == next.file && part.offset + static_cast<std::int64_t>(part.bytes) == next.offset &&
         part.to + part.bytes == next.to;
}

}  // namespace

bool WeightsInFiles::contain(const Unit& unit) const {
  return std::ranges::all_of(unit.parameters, [&](const UnitParameter& parameter) {
    return std::ranges::all_of(parameter.weights,
                               [&](const UnitWeight& weight) { return weights.contains(weight.slice.name); });
  });
}

std::vector<FilePart> WeightsInFiles::parts_of(const Unit& unit, const Extent& elements,
                                               std::size_t element_bytes) const {
  std::vector<FilePart> parts;
  const auto bytes = [&](std::int64_t count) { return static_cast<std::size_t>(count) * element_bytes; };
  for (const UnitParameter& parameter : unit.parameters) {
    std::int64_t at = parameter.offset;  // of the unit
    for (const UnitWeight& weight : parameter.weights) {
      const Extent wanted = common({at, at + weight.elements}, elements);
      const std::int64_t first = weight.begin + wanted.begin - at;  // of the weight
      at += weight.elements;
      if (wanted.empty()) continue;
      const Place& place = weights.at(weight.slice.name);
      const FilePart part{place.file, place.offset + static_cast<std::int64_t>(bytes(first)), bytes(wanted.elements()),
                          bytes(wanted.begin - elements.begin)};
      if (!parts.empty() && continues(parts.back(), part))
        parts.back().bytes += part.bytes;
      else
        parts.push_back(part);
    }
  }
  return parts;
}

}  // namespace zeepo
