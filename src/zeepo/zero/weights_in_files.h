// Weights that lie in files as the engine would store them: read from there in every pass, and never copied.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "zeepo/base/dtype.h"
#include "zeepo/memory/file_parts.h"
#include "zeepo/zero/unit.h"

namespace zeepo {

struct WeightsInFiles {
  // Where a weight's elements lie, one after another.
  struct Place {
    const StoredFile* file;
    std::int64_t offset;  // bytes
  };

  DType dtype = DType::f32;
  std::vector<std::unique_ptr<StoredFile>> files;
  std::map<std::string, Place> weights;  // by name
  std::string why_not_all;               // of the first weight that is not there: in words

  // Whether all weights of the unit lie in the files.
  bool contain(const Unit& unit) const;
  // What of the files belongs to these elements of the unit, each part at its place from the first element on.
  std::vector<FilePart> parts_of(const Unit& unit, const Extent& elements, std::size_t element_bytes) const;
};

}  // namespace zeepo
