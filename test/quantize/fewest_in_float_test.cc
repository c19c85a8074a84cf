// The search for the layers that stay in floating point, on made-up losses.

#include <coracle/quantize/quantize.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace coracle::fewest_in_float_test {

using Names = std::set<std::string>;

// The loss is the sum of the losses of the layers that are not in floating point.
struct Losses {
  std::map<std::string, double> of;
  int calls = 0;

  Names Find(const std::vector<std::string>& order, double most) {
    return FewestInFloat(order, most, [&](const Names& in_float) {
      ++calls;
      double sum = 0;
      for (const auto& [name, loss] : of) sum += in_float.count(name) ? 0 : loss;
      return sum;
    });
  }
};

TEST(FewestInFloat, IsEmptyIfTheLossIsSmall) {
  Losses losses{{{"a", 0.1}, {"b", 0.2}}};
  EXPECT_EQ(losses.Find({"b", "a"}, 0.31), Names{});
  EXPECT_EQ(losses.calls, 1);
}

TEST(FewestInFloat, FindsTheOneLayerThatMatters) {
  Losses losses{{{"a", 1}, {"b", 0}, {"c", 0}, {"d", 0}, {"e", 0}}};
  for (const std::vector<std::string>& order : {std::vector<std::string>{"a", "b", "c", "d", "e"},
                                                {"e", "d", "c", "b", "a"},
                                                {"b", "c", "a", "d", "e"}})
    EXPECT_EQ(losses.Find(order, 0.5), Names{"a"});
}

TEST(FewestInFloat, ReturnsLayersThatAreNotNeeded) {
  Losses losses{{{"a", 0.3}, {"b", 0.01}, {"c", 0.4}, {"d", 0.02}, {"e", 0.5}, {"f", 0}}};
  EXPECT_EQ(losses.Find({"a", "b", "c", "d", "e", "f"}, 0.1), (Names{"a", "c", "e"}));
}

TEST(FewestInFloat, ReturnsAllIfNothingIsGoodEnough) {
  Losses losses{{{"a", 1}, {"b", 1}}};
  EXPECT_EQ(losses.Find({"a", "b"}, -1), (Names{"a", "b"}));
  EXPECT_EQ(FewestInFloat({"a", "b"}, 0.1, [](const Names&) { return std::nan(""); }),
            (Names{"a", "b"}));
  EXPECT_EQ(FewestInFloat({"a"}, 0.1, [](const Names&) { return 1.0; }), Names{"a"});
  EXPECT_EQ(FewestInFloat({}, 0.1, [](const Names&) { return 1.0; }), Names{});
}

}  // namespace coracle::fewest_in_float_test
