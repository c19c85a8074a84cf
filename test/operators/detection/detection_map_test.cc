#include <coracle/test/op_test.h>

namespace coracle::detection_map_test {

using Doubles = std::vector<double>;

OpTest Map(const std::string& type = "integral") {
  return std::move(OpTest("detection_map").Attr("class_num", 3).Attr("ap_type", type));
}

// Two images. Class 1 has a box in each (the second is difficult), class 2 one in the first.
const Doubles kLabels = {1, 0, 0, 0, .4, .4, 2, 0, .5, .5, .9, .9, 1, 1, .1, .1, .3, .3};
// Class 1: right, a second match, a miss next to it; right in the second image. Class 2: too small.
const Doubles kFound = {1,  .9, 0,  0, .4, .4, 1,  .8, 0,  0, .4, .4, 1,  .7, .6,
                        .6, .8, .8, 2, .6, .5, .5, .6, .6, 1, .5, .1, .1, .3, .3};

OpTest& Images(OpTest& test) {
  return test.Input("DetectRes", {5, 6}, kFound)
      .Lod({{0, 4, 5}})
      .Input("Label", {3, 6}, kLabels)
      .Lod({{0, 2, 3}});
}

TEST(DetectionMap, Values) {
  // Class 1: precisions 1, 1/2, 1/3, 2/4 at recalls 1/2, 1/2, 1/2, 1.
  OpTest integral = Map();
  Images(integral)
      .Expect("MAP", {1}, {(0.5 + 0.25 + 0) / 2})
      .Expect("AccumPosCount", {3, 1}, {0, 2, 1})
      .Expect("AccumTruePos", {5, 2}, {.9, 1, .8, 0, .7, 0, .5, 1, .6, 0})
      .Expect("AccumFalsePos", {5, 2}, {.9, 0, .8, 1, .7, 1, .5, 0, .6, 1})
      .ExpectLod("AccumTruePos", {{0, 0, 4, 5}})
      .ExpectDType("AccumPosCount", DType::kInt32);
  OpTest points = Map("11point");
  Images(points).Expect("MAP", {1}, {(6.0 + 5 * 0.5) / 11 / 2});
  // Without the difficult box, the last detection does not count.
  OpTest easy = Map();
  Images(easy.Attr("evaluate_difficult", false))
      .Expect("MAP", {1}, {(1.0 + 0) / 2})
      .Expect("AccumPosCount", {3, 1}, {0, 1, 1})
      .ExpectLod("AccumTruePos", {{0, 0, 3, 4}});
  OpTest background = Map();
  Images(background.Attr("background_label", 2)).Expect("MAP", {1}, {0.75});
}

TEST(DetectionMap, State) {
  const auto with = [](int64_t state, const Shape& counts = {3, 1}) {
    OpTest test = Map();
    return std::move(test.Input("DetectRes", {1, 6}, {1, .5, -1, -1, .4, .4})
                         .Input("Label", {1, 5}, {1, 0, 0, .4, .4})
                         .IntInput("HasState", {1}, {state}, DType::kInt32)
                         .IntInput("PosCount", counts, {0, 1, 0}, DType::kInt32)
                         .Input("TruePos", {2, 2}, {.9, 0, .2, 1})
                         .Lod({{0, 0, 2, 2}})
                         .Input("FalsePos", {2, 2}, {.9, 1, .2, 0})
                         .Lod({{0, 0, 2, 2}}));
  };
  with(1)
      .Expect("AccumPosCount", {3, 1}, {0, 2, 0})
      .Expect("AccumTruePos", {3, 2}, {.9, 0, .2, 1, .5, 1})
      .Expect("MAP", {1}, {0.5 * 0.5 + 2.0 / 3 * 0.5});
  with(1, {3}).Expect("AccumPosCount", {3, 1}, {0, 2, 0});
  with(0).Expect("AccumPosCount", {3, 1}, {0, 1, 0}).Expect("MAP", {1}, {1});
}

TEST(DetectionMap, Nothing) {
  Map()
      .Input("DetectRes", {0, 6}, {})
      .Input("Label", {0, 6}, {})
      .Expect("MAP", {1}, {0})
      .Expect("AccumTruePos", {0, 2}, {})
      .ExpectLod("AccumTruePos", {{0, 0, 0, 0}});
}

OpTest With(const Shape& found, const Shape& label, const LoD& lod = {}) {
  OpTest test = Map();
  test.Input("DetectRes", found, Doubles(static_cast<size_t>(found.numel()), 0));
  return std::move(
      test.Input("Label", label, Doubles(static_cast<size_t>(label.numel()), 0)).Lod(lod));
}

TEST(DetectionMap, Constraints) {
  const std::string op = "detection_map";
  Map()
      .RandomInput("DetectRes", {1, 6})
      .IntInput("Label", {1, 5}, {0, 0, 0, 0, 0})
      .ExpectError(op + ".C1");
  With({1, 5}, {1, 5}).ExpectError(op + ".C2");
  With({1, 6}, {1, 4}).ExpectError(op + ".C3");
  With({1, 6}, {1, 5}, {{0, 0, 1}}).ExpectError(op + ".C4");
  With({1, 6}, {1, 5}).IntInput("HasState", {2}, {0, 0}).ExpectError(op + ".C5");
  With({1, 6}, {1, 5}).IntInput("HasState", {1}, {0}).ExpectError(op + ".C6");
  const auto state = [](const std::vector<int64_t>& counts, int64_t rows) {
    return std::move(With({1, 6}, {1, 5})
                         .IntInput("HasState", {1}, {1})
                         .IntInput("PosCount", {3, 1}, counts, DType::kInt32)
                         .RandomInput("TruePos", {rows, 2})
                         .RandomInput("FalsePos", {1, 2}));
  };
  state({0, 0, 0}, 1).ExpectError(op + ".C6");
  state({0, 0, 0}, 2).ExpectError(op + ".C6");
  state({0, -1, 0}, 1).ExpectError(op + ".C6");
  for (double label : {-1.0, 3.0}) {
    Map()
        .Input("DetectRes", {1, 6}, {label, 0, 0, 0, 0, 0})
        .Input("Label", {0, 5}, {})
        .ExpectError(op + ".C7");
  }
}
}  // namespace coracle::detection_map_test
