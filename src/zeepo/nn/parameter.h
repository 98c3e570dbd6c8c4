// A trainable array of a model: its name, shape and first values. The memory comes later, from the engine that trains
// or runs the model (zero/), and may come and go.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zeepo/autograd/gradient.h"
#include "zeepo/tensor/tensor.h"
#include "zeepo/tensor/weight_source.h"

namespace zeepo {

class Parameter {
 public:
  // A part with a name of its own, as files know it: q, k and v of a fused projection. Parts follow one another and
  // fill the parameter. Where the parameter is a tile, its first and last part may be some elements of a named weight.
  struct Slice {
    std::string name;
    Shape shape;                                          // of the named weight
    std::int64_t begin = 0, elements = shape.elements();  // of it
    bool trainable = true;
  };

  Parameter(std::string name, Shape shape, Init init);

  const std::string& name() const { return name_; }
  const Shape& shape() const { return leaf_->shape(); }
  std::int64_t elements() const { return shape().elements(); }
  const Init& init() const { return init_; }
  const std::vector<Slice>& slices() const { return slices_; }  // at least one: itself
  void set_slices(std::vector<Slice> slices);
  // A slice stays as it is; with all of them, the parameter. One that is frozen in part must be cut before an engine is
  // made for the model: tile_linears() (nn/layers.h).
  void freeze(std::size_t slice);
  bool partly_frozen() const;

  Leaf& leaf() const { return *leaf_; }
  // The value as it is now, its gradient wanted if the parameter is trainable.
  operator Tensor() const;

 private:
  std::string name_;
  Init init_;
  std::vector<Slice> slices_;
  std::shared_ptr<Leaf> leaf_;
};

}  // namespace zeepo
