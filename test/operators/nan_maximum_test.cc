// One rule for all maxima and minima: a nan comes out, wherever in the window it is, and the
// gradient goes to it.

#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <cmath>
#include <limits>

namespace coracle::nan_maximum_test {

using Ints = std::vector<int32_t>;

const double kNan = std::nan("");

struct Case {
  std::string name, type;
  Shape x;  // eight elements, all of one window
  AttrList attrs;
  std::vector<std::pair<std::string, Tensor>> others = {};
};

std::vector<Case> Cases() {
  const NamedAttr max{"pooling_type", std::string("max")}, global{"global_pooling", true};
  const Tensor ids = Tensor::Of<int64_t>({8}, {0, 0, 0, 0, 0, 0, 0, 0});
  const Tensor roi = Tensor::Of<float>({1, 4}, {0, 0, 3, 1}), one = Tensor::Of<int32_t>({1}, {1});
  return {
      {"window", "pool2d", {1, 1, 2, 4}, {max, {"ksize", Ints{2, 4}}}},
      {"global", "pool2d", {1, 1, 2, 4}, {max, {"ksize", Ints{1, 1}}, global}},
      {"adaptive", "pool2d", {1, 1, 2, 4}, {max, {"ksize", Ints{1, 1}}, {"adaptive", true}}},
      {"channels last",
       "pool2d",
       {1, 2, 4, 1},
       {max, {"ksize", Ints{2, 4}}, {"data_format", std::string("NHWC")}}},
      {"volume", "pool3d", {1, 1, 2, 2, 2}, {max, {"ksize", Ints{2, 2, 2}}}},
      {"with index", "max_pool2d_with_index", {1, 1, 2, 4}, {{"ksize", Ints{2, 4}}}},
      {"volume with index", "max_pool3d_with_index", {1, 1, 2, 2, 2}, {{"ksize", Ints{2, 2, 2}}}},
      {"pyramid", "spp", {1, 1, 2, 4}, {max, {"pyramid_height", 1}}},
      {"groups", "maxout", {1, 8, 1, 1}, {{"groups", 8}}},
      {"line", "reduce_max", {8}, {{"dim", Ints{0}}}},
      {"columns", "reduce_max", {8, 1}, {{"dim", Ints{0}}}},
      {"line", "reduce_min", {8}, {{"dim", Ints{0}}}},
      {"segment",
       "segment_pool",
       {8, 1},
       {{"pooltype", std::string("MAX")}},
       {{"SegmentIds", ids}}},
      {"segment",
       "segment_pool",
       {8, 1},
       {{"pooltype", std::string("MIN")}},
       {{"SegmentIds", ids}}},
      {"region", "roi_pool", {1, 1, 2, 4}, {}, {{"ROIs", roi}, {"RoisNum", one}}},
  };
}

Tensor NumbersWithNan(const Shape& shape, int place) {
  Tensor x = Tensor::Zeros(DType::kFloat64, shape);
  const double numbers[] = {3, -std::numeric_limits<double>::infinity(), 1, 4, -1, 5, 9, 2};
  for (int i = 0; i < 8; ++i) x.data<double>()[i] = i == place ? kNan : numbers[i];
  return x;
}

TEST(NanMaximum, ComesOutOfEveryPlace) {
  for (const Case& c : Cases()) {
    for (int place = 0; place < 8; ++place) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
        SCOPED_TRACE(testing::Message()
                     << c.type << " " << c.name << " at " << place << " " << ToString(dtype));
        OpTest op(c.type);
        for (const NamedAttr& attr : c.attrs) op.Attr(attr.name, attr.value);
        op.TensorInput("X", NumbersWithNan(c.x, place).Cast(dtype));
        for (const auto& [slot, tensor] : c.others)
          op.TensorInput(slot, IsFloating(tensor.dtype()) ? tensor.Cast(dtype) : tensor);
        for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto})
          EXPECT_TRUE(std::isnan(NumbersOf(op.Output("Out", mode))[0]));
      }
    }
  }
}

TEST(NanMaximum, HasTheGradient) {
  for (const Case& c : Cases()) {
    for (int place = 0; place < 8; ++place) {
      SCOPED_TRACE(testing::Message() << c.type << " " << c.name << " at " << place);
      std::vector<std::pair<std::string, Tensor>> inputs = c.others;
      inputs.push_back({"X", NumbersWithNan(c.x, place).Cast(DType::kFloat32)});
      std::vector<double> want(8, 0.0);
      want[static_cast<size_t>(place)] = 1;
      for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto})
        EXPECT_EQ(NumbersOf(GradientOf(c.type, c.attrs, inputs, "X", "Out", mode)), want);
    }
  }
}

TEST(NanMaximum, OfSequences) {
  for (const int place : {0, 1, 2}) {
    std::vector<double> x = {1, 5, 2, 7}, grad = {0, 0, 0, 1};
    x[static_cast<size_t>(place)] = kNan;
    grad[static_cast<size_t>(place)] = 1;
    OpTest("sequence_pool")
        .Attr("pooltype", std::string("MAX"))
        .Input("X", {4, 1}, x)
        .Lod({{0, 3, 4}})
        .Expect("Out", {2, 1}, {kNan, 7});
    OpTest("sequence_pool_grad")
        .Attr("pooltype", std::string("MAX"))
        .Input("X", {4, 1}, x)
        .Lod({{0, 3, 4}})
        .Input("Out@GRAD", {2, 1}, {1, 1})
        .Expect("X@GRAD", {4, 1}, grad);
  }
}

TEST(NanMaximum, IsAmongTheLargestOfARow) {
  OpTest("sequence_topk_avg_pooling")
      .Attr("topks", Ints{1, 2})
      .Attr("channel_num", 1)
      .Input("X", {6, 1}, {1, kNan, 3, 4, 6, 2})
      .Input("ROW", {2, 1}, {0, 0})
      .Lod({{0, 2}})
      .Input("COLUMN", {3, 1}, {0, 0, 0})
      .Lod({{0, 3}})
      .Expect("Out", {2, 2}, {kNan, kNan, 6, 5});
}

TEST(NanMaximum, HasTheFirstPlace) {
  for (const char* type : {"arg_max", "arg_min"}) {
    OpTest(type)
        .Attr("axis", int64_t{0})
        .Input("X", {5}, {1, kNan, 7, kNan, -3})
        .Expect("Out", {1}, {1});
  }
}

// Windows that overlap, in whole vectors and their remainders.
TEST(NanMaximum, OfOverlappingWindows) {
  constexpr int kSize = 21, kChannels = 19, kOut = 10;
  for (const char* format : {"NCHW", "NHWC"}) {
    const bool last = std::string(format) == "NHWC";
    const auto at = [&](int size, int c, int y, int x) {
      return static_cast<size_t>(last ? (y * size + x) * kChannels + c : (c * size + y) * size + x);
    };
    std::vector<double> x(kChannels * kSize * kSize), want(kChannels * kOut * kOut);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = i * 7919 % 41 == 0 ? kNan : static_cast<double>(i * 104729 % 1009) - 1500;
    for (int c = 0; c < kChannels; ++c) {
      for (int i = 0; i < kOut * kOut; ++i) {
        double best = -1e9;
        for (int k = 0; k < 9; ++k) {
          const double v = x[at(kSize, c, i / kOut * 2 + k / 3, i % kOut * 2 + k % 3)];
          best = std::isnan(best) || std::isnan(v) ? kNan : std::max(best, v);
        }
        want[at(kOut, c, i / kOut, i % kOut)] = best;
      }
    }
    OpTest("pool2d")
        .Attr("pooling_type", std::string("max"))
        .Attr("ksize", Ints{3, 3})
        .Attr("strides", Ints{2, 2})
        .Attr("data_format", std::string(format))
        .Input("X", last ? Shape{1, kSize, kSize, kChannels} : Shape{1, kChannels, kSize, kSize}, x)
        .Expect("Out", last ? Shape{1, kOut, kOut, kChannels} : Shape{1, kChannels, kOut, kOut},
                want);
  }
}

}  // namespace coracle::nan_maximum_test
