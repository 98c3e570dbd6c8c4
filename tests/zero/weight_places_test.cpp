#include "zeepo/zero/weight_places.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/support/errors.h"
#include "zeepo/binding/model_units.h"
#include "zeepo/nn/layers.h"

namespace zeepo {
namespace {

class PlacedModel : public Module {
 public:
  PlacedModel() {
    child<Linear>("up", 3, 5);
    child<Linear>("down", 5, 3);
  }
};

// Parameters of four elements with these names.
class Sliced : public Module {
 public:
  explicit Sliced(std::vector<std::vector<Parameter::Slice>> slices) {
    for (std::size_t i = 0; i < slices.size(); ++i)
      parameter("p" + std::to_string(i), {4}, Init::ones()).set_slices(std::move(slices[i]));
  }
};

TEST(WeightPlaces, AParameterAndItsNameAreAtOnePlace) {
  PlacedModel model;
  const UnitPlan plan = plan_units(model);
  const WeightPlaces places(plan);
  std::size_t weights = 0;
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    EXPECT_EQ(places.in_unit(u).size(), plan.units[u].parameters.size());
    for (const auto& parameter : plan.units[u].parameters) {
      ++weights;
      const PlacedWeight& named = places.of(parameter.weights.front().slice.name);
      ASSERT_EQ(named.places.size(), 1);
      EXPECT_EQ(named.places[0].elements, parameter.shape.elements());
      EXPECT_EQ(named.places[0].place.unit, u);
      EXPECT_EQ(named.places[0].place.offset, parameter.offset);
    }
  }
  EXPECT_EQ(weights, 4);
  EXPECT_EQ(places.by_name().size(), weights);
}

TEST(WeightPlaces, AWeightMayBeCutOverParametersAndShareOne) {
  Sliced model({{{.name = "w", .shape = {6}, .begin = 0, .elements = 4}},
                {{.name = "w", .shape = {6}, .begin = 4, .elements = 2}, {.name = "b", .shape = {2}}}});
  const WeightPlaces places(plan_units(model));
  const auto& cut = places.of("w").places;
  ASSERT_EQ(cut.size(), 2);
  EXPECT_EQ(cut[0].begin, 0);
  EXPECT_EQ(cut[0].place.offset, 0);
  EXPECT_EQ(cut[1].begin, 4);
  EXPECT_EQ(cut[1].elements, 2);
  EXPECT_EQ(cut[1].place.offset, Unit::kAlignment);
  ASSERT_EQ(places.of("b").places.size(), 1);
  EXPECT_EQ(places.of("b").places[0].place.offset, Unit::kAlignment + 2);
  EXPECT_EQ(places.in_unit(0).size(), 3);
}

TEST(WeightPlaces, EachElementOfAWeightIsThereOnce) {
  Sliced twice({{{.name = "w", .shape = {4}}}, {{.name = "w", .shape = {4}}}});
  EXPECT_TRUE(names(error_text([&] { WeightPlaces{plan_units(twice)}; }), "two parameters are named w"));
  Sliced short_of_two({{{.name = "w", .shape = {6}, .begin = 0, .elements = 4}}});
  EXPECT_TRUE(names(error_text([&] { WeightPlaces{plan_units(short_of_two)}; }), "w has 6", "have 4"));
}

TEST(WeightPlaces, AnUnknownNameIsAnError) {
  PlacedModel model;
  const WeightPlaces places(plan_units(model));
  EXPECT_TRUE(names(error_text([&] { (void)places.of("sideways"); }), "no weight is named sideways"));
}

}  // namespace
}  // namespace zeepo
