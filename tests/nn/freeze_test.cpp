#include "zeepo/nn/freeze.h"

#include "tests/support/errors.h"
#include "zeepo/nn/layers.h"

namespace zeepo {
namespace {

class Net : public Module {
 public:
  Net()
      : fused(child<Linear>("attn", 4, std::vector<Linear::Part>{{"q", 4}, {"k", 2}, {"v", 2}},
                            Linear::Options{.init_deviation = 0.1f})),
        norm(child<RmsNorm>("norm", 4)) {}
  Linear& fused;
  RmsNorm& norm;
};

// "name+" for a trained weight, "name-" for a frozen one, a word for each parameter.
std::string state_of(const Module& model) {
  std::string state;
  for (const auto& [prefix, parameter] : named_parameters(model)) {
    state += state.empty() ? "" : " ";
    for (const auto& slice : parameter->slices()) state += prefix + slice.name + ",";
    state.back() = parameter->leaf().trainable() ? '+' : '-';
  }
  return state;
}

TEST(Freeze, CutsLayersWhereSomePartsAreFrozen) {
  Net some;
  freeze(some, {"attn.q.*", "attn.v.weight"}, "--freeze");
  tile_linears(some, 1);
  EXPECT_EQ(state_of(some),
            "attn.q.bias- attn.k.bias,attn.v.bias+ attn.q.weight- attn.k.weight+ attn.v.weight- "
            "norm.weight+");
  Net tiled;
  freeze(tiled, {"*.q.weight"}, "--freeze");
  tile_linears(tiled, 3);  // rows 2 and 5, and where q ends
  EXPECT_EQ(state_of(tiled),
            "attn.q.bias,attn.k.bias,attn.v.bias+ attn.q.weight- attn.q.weight- attn.k.weight+ "
            "attn.k.weight,attn.v.weight+ norm.weight+");
}

TEST(Freeze, LeavesWholeLayersWhole) {
  Net all;
  freeze(all, {"attn.*"}, "--freeze");
  tile_linears(all, 1);
  EXPECT_EQ(state_of(all),
            "attn.q.weight,attn.k.weight,attn.v.weight- attn.q.bias,attn.k.bias,attn.v.bias- norm.weight+");
  EXPECT_FALSE(all.fused.trains());
  EXPECT_TRUE(all.trains());
}

TEST(Freeze, NamesWhatMatchesNothingAndRefusesAll) {
  Net net;
  EXPECT_TRUE(names(error_text([&] {
                      freeze(net, {"norm.*", "layers.?.*"}, "train: --freeze");
                    }),
                    "train: --freeze layers.?.*", "none of the 7 weights", "norm.weight"));
  Net other;
  EXPECT_TRUE(names(error_text([&] {
                      freeze(other, {"*.weight", "*.bias"}, "--freeze");
                    }),
                    "*.weight,*.bias", "nothing is left to train"));
}

}  // namespace
}  // namespace zeepo
