// A program that is exported and imported again computes the same.
#include <coracle/convert/models.h>
#include <coracle/coracle.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/test/error_of.h>
#include <coracle/test/real_models.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace coracle::onnx_round_trip_test {

std::vector<Tensor> RunSaved(const ProgramDesc& program, Scope& scope,
                             const std::map<std::string, Tensor>& feeds) {
  PreparedProgram net = Executor().PrepareOwning(program, scope);
  std::vector<Tensor> in_order, results;
  for (const std::string& name : FeedNames(program)) in_order.push_back(feeds.at(name));
  for (const Tensor& t : net.Run(scope, in_order)) results.push_back(t.Clone());
  return results;
}

// The largest difference of all outputs, each divided by its largest element.
double Difference(const std::vector<Tensor>& want, const std::vector<Tensor>& got) {
  EXPECT_EQ(want.size(), got.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(want.size(), got.size()); ++i) {
    EXPECT_EQ(want[i].ToString(), got[i].ToString());
    if (want[i].numel() != got[i].numel()) return INFINITY;
    const Tensor a = want[i].Cast(DType::kFloat64), b = got[i].Cast(DType::kFloat64);
    double largest = 1e-6, difference = 0;
    for (int64_t k = 0; k < a.numel(); ++k) {
      largest = std::max(largest, std::abs(a.data<double>()[k]));
      difference = std::max(difference, std::abs(a.data<double>()[k] - b.data<double>()[k]));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

double RoundTrip(const ProgramDesc& program, const Scope& scope,
                 const std::map<std::string, Tensor>& feeds) {
  TemporaryDirectory directory;
  ExportOnnx(directory.File("model.onnx"), program, scope);
  Scope imported_scope, own = scope.Clone();
  const InferenceModel imported =
      ImportOnnxFor(directory.File("model.onnx"), feeds, imported_scope);
  return Difference(RunSaved(program, own, feeds),
                    RunSaved(imported.program, imported_scope, feeds));
}

TEST(OnnxRoundTrip, RealModels) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "no test data";
  ForEachModel(64, [&](DrawnModel& model) {
    double difference = INFINITY;
    try {
      difference = RoundTrip(model.program, model.scope, model.feeds);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
    EXPECT_LE(difference, 1e-4) << model.path;
    fmt::print("{:.1e} {}\n", difference, model.path);
  });
}

// Gives the program feeds, of the shapes that it declares or of their own, and fetches.
void AddEnds(ProgramDesc& program, const std::map<std::string, Tensor>& feeds,
             const std::vector<std::string>& fetches) {
  std::vector<std::string> names;
  for (const auto& [name, value] : feeds) {
    names.push_back(name);
    VarDesc& var = program.Root().Var(name);
    const bool declared = var.shape().rank() > 0;
    var.SetMeta({VarType::kLoDTensor, value.dtype(), declared ? var.shape() : value.shape(), 0});
  }
  SetFeedsAndFetches(program, names, fetches);
}

// Exporting and importing keeps every element exactly.
void ExpectSame(ProgramDesc program, const std::map<std::string, Tensor>& feeds,
                const std::vector<std::string>& fetches) {
  AddEnds(program, feeds, fetches);
  EXPECT_EQ(RoundTrip(program, Scope(), feeds), 0);
}

// The results of the exported and imported program.
std::vector<Tensor> Imported(ProgramDesc program, const std::map<std::string, Tensor>& feeds,
                             const std::vector<std::string>& fetches) {
  AddEnds(program, feeds, fetches);
  TemporaryDirectory directory;
  ExportOnnx(directory.File("model.onnx"), program, Scope());
  Scope scope;
  const InferenceModel model = ImportOnnxFor(directory.File("model.onnx"), feeds, scope);
  return RunSaved(model.program, scope, feeds);
}

TEST(OnnxRoundTrip, PowersOfIntegersSaturate) {
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    ProgramDesc program;
    program.Root().Var("z").SetDType(dtype);
    program.Root().AppendOp("elementwise_pow", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"z"}}});
    const auto x = Tensor::Of<int64_t>({9}, {3, 2, 2, -2, -2, -3, 0, 10, 7});
    const auto y = Tensor::Of<int64_t>({9}, {35, 62, 63, 63, 64, 45, -1, 40, -2});
    ExpectSame(program, {{"x", x.Cast(dtype)}, {"y", y.Cast(dtype)}}, {"z"});
  }
}

// An axis that is known only when the model runs.
TEST(OnnxRoundTrip, AxesThatAreFed) {
  const auto x = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const int64_t axis : {0, 1, -1}) {
    ProgramDesc sums;
    sums.Root().Var("y").SetDType(DType::kFloat32);
    sums.Root().AppendOp("cumsum", {{"X", {"x"}}, {"AxisTensor", {"axis"}}}, {{"Out", {"y"}}});
    const std::map<std::string, Tensor> feeds = {{"x", x},
                                                 {"axis", Tensor::Of<int64_t>({1}, {axis})}};
    ExpectSame(sums, feeds, {"y"});
    const std::vector<Tensor> got = Imported(sums, feeds, {"y"});
    const std::vector<float> want =
        axis == 0 ? std::vector<float>{1, 2, 3, 5, 7, 9} : std::vector<float>{1, 3, 6, 4, 9, 15};
    EXPECT_EQ(std::vector<float>(got[0].span<float>().begin(), got[0].span<float>().end()), want);
  }
}

TEST(OnnxRoundTrip, UnsignedIntegers) {
  const auto x = Tensor::Of<uint64_t>({2}, {18446744073709551615U, 3}),
             y = Tensor::Of<uint64_t>({2}, {2, 18446744073709551615U});
  for (const char* type : {"elementwise_add", "elementwise_sub", "elementwise_mul", "less_than"}) {
    ProgramDesc program;
    program.Root().Var("z").SetDType(type == std::string("less_than") ? DType::kBool
                                                                      : DType::kUInt64);
    program.Root().AppendOp(type, {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"z"}}});
    const std::vector<Tensor> got = Imported(program, {{"x", x}, {"y", y}}, {"z"});
    if (type == std::string("elementwise_add")) {
      EXPECT_TRUE(BitEqual(got[0], Tensor::Of<uint64_t>({2}, {1, 2})));
    } else if (type == std::string("less_than")) {
      EXPECT_TRUE(BitEqual(got[0], Tensor::Of<bool>({2}, {false, true})));
    }
  }
}

// No step of the quotient leaves the dtype.
TEST(OnnxRoundTrip, FloorQuotientsOfLargeIntegers) {
  const auto check = [](DType dtype, int64_t most) {
    SCOPED_TRACE(ToString(dtype));
    const int64_t least = -most - 1;
    ProgramDesc program;
    program.Root().Var("z").SetDType(dtype);
    program.Root().AppendOp("elementwise_floordiv", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"z"}}});
    const std::vector<int64_t> x = {most, least, most - 1, least, 7, -7, 7, -7, 6, -6, 0, most};
    const std::vector<int64_t> y = {-3, 3, -4, -3, 3, 3, -3, -3, -3, 3, -3, -2};
    ExpectSame(program,
               {{"x", Tensor::Of<int64_t>({12}, x).Cast(dtype)},
                {"y", Tensor::Of<int64_t>({12}, y).Cast(dtype)}},
               {"z"});
  };
  check(DType::kInt8, INT8_MAX);
  check(DType::kInt16, INT16_MAX);
  check(DType::kInt32, INT32_MAX);
  check(DType::kInt64, INT64_MAX);
}

TEST(OnnxRoundTrip, NllLoss) {
  const auto x = Tensor::Of<float>({3, 2}, {-0.5f, -1, -2, -0.25f, -3, -4});
  const std::map<std::string, Tensor> all = {{"x", x},
                                             {"label", Tensor::Of<int64_t>({3}, {1, -100, 0})},
                                             {"weight", Tensor::Of<float>({2}, {0.5f, 2})}};
  for (const std::string reduction : {"none", "mean", "sum"}) {
    for (const bool weighted : {false, true}) {
      for (const bool ignored : {false, true}) {
        ProgramDesc program;
        auto feeds = all;
        SlotList inputs = {{"X", {"x"}}, {"Label", {"label"}}, {"Weight", {"weight"}}};
        if (!weighted) {
          feeds.erase("weight");
          inputs = {{"X", {"x"}}, {"Label", {"label"}}};
        }
        if (ignored) feeds["label"] = Tensor::Full<int64_t>({3}, -100);
        for (const char* name : {"out", "total"}) program.Root().Var(name).SetDType(x.dtype());
        program.Root().AppendOp("nll_loss", inputs, {{"Out", {"out"}}, {"Total_weight", {"total"}}},
                                {{"reduction", reduction}});
        ExpectSame(program, feeds, {"out", "total"});
      }
    }
  }
}

// The factors of a formula must not leave the dtype before their product does.
TEST(OnnxRoundTrip, Expm1OfLargeNumbers) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto x = Tensor::Of<float>({8}, {-kInf, -1000, -200, -178, -90, 80.5f, 200, kInf});
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    ProgramDesc program;
    program.Root().Var("y").SetDType(dtype);
    program.Root().AppendOp("expm1", {{"X", {"x"}}}, {{"Out", {"y"}}});
    const std::vector<Tensor> y = Imported(program, {{"x", x.Cast(dtype)}}, {"y"});
    const Tensor wide = y[0].Cast(DType::kFloat64);
    for (int64_t i = 0; i < 8; ++i) {
      const double want = std::expm1(static_cast<double>(x.data<float>()[i]));
      const double in_dtype = dtype == DType::kFloat64 ? want : static_cast<float>(want);
      const double got = wide.data<double>()[i];
      EXPECT_TRUE(got == in_dtype || std::abs(got - in_dtype) <= 1e-6 * std::abs(in_dtype))
          << ToString(dtype) << " " << x.data<float>()[i] << ": " << got;
    }
  }
}

// Bounds of any order and sign, of a dim that is declared, or not, and of tensors.
TEST(OnnxRoundTrip, SetValueOfAnyBounds) {
  using Longs = std::vector<int64_t>;
  const auto x = Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  const auto value = Tensor::Of<float>({1}, {9});
  for (const bool open : {false, true}) {
    for (const bool tensors : {false, true}) {
      for (const Longs& bounds : std::vector<Longs>{
               {2, 1}, {0, 2}, {1, -2}, {-1, 1}, {-1, 9}, {-9, 2}, {5, 2}, {-1, -2}, {1, -1}}) {
        ProgramDesc program;
        std::map<std::string, Tensor> feeds = {{"x", x}, {"value", value}};
        SlotList inputs = {{"Input", {"x"}}, {"ValueTensor", {"value"}}};
        AttrList attrs = {{"axes", Longs{0}}, {"steps", Longs{1}}};
        if (tensors) {
          inputs.push_back({"StartsTensorList", {"start"}});
          inputs.push_back({"EndsTensorList", {"end"}});
          feeds["start"] = Tensor::Of<int64_t>({1}, {bounds[0]});
          feeds["end"] = Tensor::Of<int64_t>({1}, {bounds[1]});
        } else {
          attrs.push_back({"starts", Longs{bounds[0]}});
          attrs.push_back({"ends", Longs{bounds[1]}});
        }
        program.Root().Var("y").SetDType(DType::kFloat32);
        program.Root().AppendOp("set_value", inputs, {{"Out", {"y"}}}, attrs);
        SCOPED_TRACE(testing::Message() << bounds[0] << ":" << bounds[1] << (open ? ", open" : "")
                                        << (tensors ? ", tensors" : ""));
        if (open) program.Root().Var("x").SetMeta({VarType::kLoDTensor, x.dtype(), {-1, 2}, 0});
        ExpectSame(program, feeds, {"y"});
      }
    }
  }
}

// --- slices ---

using Int32s = std::vector<int32_t>;

std::string ErrorOfExport(ProgramDesc program, const std::map<std::string, Tensor>& feeds) {
  return ErrorOf([&] { Imported(std::move(program), feeds, {"y"}); });
}

// With a negative step nothing comes of a start before element 0, where ONNX's Slice begins at it.
TEST(OnnxRoundTrip, StridedSliceOfAnyBounds) {
  const std::map<std::string, Tensor> feeds = {{"x", Tensor::Of<float>({4}, {1, 2, 3, 4})}};
  for (const bool open : {false, true}) {
    for (const int32_t step : {-2, -1, 1, 2}) {
      for (const int32_t start : {0, 3, 4, 7, -1, -4, -5, -7}) {
        for (const int32_t end : {0, 3, 4, 7, -1, -4, -5, -6, -9}) {
          SCOPED_TRACE(fmt::format("{}:{}:{}{}", start, end, step, open ? " open" : ""));
          ProgramDesc program;
          program.Root().Var("y").SetDType(DType::kFloat32);
          program.Root().AppendOp("strided_slice", {{"Input", {"x"}}}, {{"Out", {"y"}}},
                                  {{"axes", Int32s{0}},
                                   {"starts", Int32s{start}},
                                   {"ends", Int32s{end}},
                                   {"strides", Int32s{step}}});
          if (open)
            program.Root().Var("x").SetMeta({VarType::kLoDTensor, DType::kFloat32, {-1}, 0});
          if (open && step < 0 && start < -1)
            EXPECT_NE(ErrorOfExport(program, feeds).find("of an unknown size"), std::string::npos);
          else
            ExpectSame(program, feeds, {"y"});
        }
      }
    }
  }
}

// x[-1, :, 1:3] and the like, with bounds that are tensors.
TEST(OnnxRoundTrip, SliceAtRunTimeThatDropsSomeAxes) {
  Tensor x(DType::kFloat32, {3, 4, 5});
  std::iota(x.data<float>(), x.data<float>() + x.numel(), 0.0f);
  for (const Int32s& dropped : std::vector<Int32s>{{0}, {2}, {0, 2}, {}}) {
    for (const int64_t last : {-1, 1}) {
      SCOPED_TRACE(fmt::format("{} dropped, {}", dropped.size(), last));
      const bool first = !dropped.empty() && dropped[0] == 0;
      const bool third = !dropped.empty() && dropped.back() == 2;
      const std::vector<int64_t> starts = {first ? last : 1, third ? last : 1};
      const std::vector<int64_t> ends = {first ? last + 1 : 3, third ? last + 1 : 4};
      ProgramDesc program;
      program.Root().Var("y").SetDType(DType::kFloat32);
      program.Root().AppendOp(
          "slice", {{"Input", {"x"}}, {"StartsTensor", {"starts"}}, {"EndsTensor", {"ends"}}},
          {{"Out", {"y"}}}, {{"axes", Int32s{0, 2}}, {"decrease_axis", dropped}});
      ExpectSame(program,
                 {{"x", x},
                  {"starts", Tensor::Of<int64_t>({2}, starts)},
                  {"ends", Tensor::Of<int64_t>({2}, ends)}},
                 {"y"});
    }
  }
}

// --- quantized ops ---

// The convolution of integers of 8 bits minus their zero points, in float64, as a quantized model
// has it.
ProgramDesc IntegerConv(DType dtype) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  const auto op = [&](const std::string& type, const SlotList& inputs, const std::string& out,
                      const AttrList& attrs) {
    root.Var(out).SetDType(DType::kFloat64);
    root.AppendOp(type, inputs, {{type == "conv2d" ? "Output" : "Out", {out}}}, attrs);
  };
  const auto centred = [&](const std::string& x) {
    for (const std::string& name : {x, x + "_zero"})
      op("cast", {{"X", {name}}}, name + "_double",
         {{"in_dtype", static_cast<int32_t>(dtype)},
          {"out_dtype", static_cast<int32_t>(DType::kFloat64)}});
    op("elementwise_sub", {{"X", {x + "_double"}}, {"Y", {x + "_zero_double"}}}, x + "_centred",
       {});
  };
  centred("w");
  centred("x");
  op("conv2d", {{"Input", {"x_centred"}}, {"Filter", {"w_centred"}}}, "y",
     {{"paddings", std::vector<int32_t>{1, 1}}});
  return program;
}

// Readers of ONNX lack Conv of float64, and have ConvInteger.
TEST(OnnxRoundTrip, ConvolutionsOfIntegers) {
  const auto given = [](DType dtype, int64_t channels) {
    Tensor x(DType::kInt32, {1, channels, 3, 3}), w(DType::kInt32, {2, channels, 3, 3});
    for (int64_t i = 0; i < x.numel(); ++i) x.data<int32_t>()[i] = static_cast<int32_t>(i * 7 % 99);
    for (int64_t i = 0; i < w.numel(); ++i) w.data<int32_t>()[i] = static_cast<int32_t>(i * 5 % 88);
    return std::map<std::string, Tensor>{{"x", x.Cast(dtype)},
                                         {"w", w.Cast(dtype)},
                                         {"x_zero", Tensor::Of<int32_t>({1}, {3}).Cast(dtype)},
                                         {"w_zero", Tensor::Of<int32_t>({1}, {4}).Cast(dtype)}};
  };
  const auto types = [](const ProgramDesc& exported) {
    TemporaryDirectory directory;
    ExportOnnx(directory.File("model.onnx"), exported, Scope());
    return ReadFile(directory.File("model.onnx"));
  };
  for (const DType dtype : {DType::kInt8, DType::kUInt8}) {
    ProgramDesc program = IntegerConv(dtype);
    ExpectSame(program, given(dtype, 2), {"y"});
    AddEnds(program, given(dtype, 2), {"y"});
    EXPECT_NE(types(program).find("ConvInteger"), std::string::npos);
  }
  // Sums of so many products may exceed int32; integers of 16 bits have no such op.
  ProgramDesc large = IntegerConv(DType::kInt8), wide = IntegerConv(DType::kInt16);
  AddEnds(large, given(DType::kInt8, 4000), {"y"});
  EXPECT_EQ(types(large).find("ConvInteger"), std::string::npos);
  AddEnds(wide, given(DType::kInt16, 2), {"y"});
  EXPECT_EQ(types(wide).find("ConvInteger"), std::string::npos);
}

// --- interpolation ---

ProgramDesc Resized(const std::string& type, const AttrList& attrs) {
  ProgramDesc program;
  program.Root().Var("y").SetDType(DType::kFloat32);
  program.Root().AppendOp(type, {{"X", {"x"}}}, {{"Out", {"y"}}}, attrs);
  return program;
}

// The scales times the sizes are no whole numbers: the fractions do not affect the places of the
// samples, and if no size changes, the op copies.
TEST(OnnxRoundTrip, InterpolationByScales) {
  Tensor x(DType::kFloat32, {1, 2, 4, 5});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i * i % 23);
  for (const char* method : {"nearest", "bilinear", "bicubic"}) {
    for (const bool align : {false, true}) {
      for (const int32_t mode : {0, 1}) {
        for (const std::vector<float>& scale : std::vector<std::vector<float>>{
                 {2, 1.5f}, {0.6f, 0.7f}, {1.3f, 2.7f}, {1.1f, 1.15f}, {1.1f, 1.2f}}) {
          SCOPED_TRACE(fmt::format("{} align {} mode {} scale {}", method, align, mode, scale[1]));
          ProgramDesc program =
              Resized(std::string(method) + "_interp_v2",
                      {{"scale", scale}, {"align_corners", align}, {"align_mode", mode}});
          AddEnds(program, {{"x", x}}, {"y"});
          EXPECT_LE(RoundTrip(program, Scope(), {{"x", x}}), 2e-6);
        }
      }
    }
  }
}

// Readers differ in whether 4 * 0.3 elements are one.
TEST(OnnxRoundTrip, OneElementAndAFractionIsRefused) {
  Tensor x(DType::kFloat32, {1, 1, 4, 4});
  std::iota(x.data<float>(), x.data<float>() + 16, 0.0f);
  const auto attrs = [](float scale, int32_t mode, bool align) {
    return AttrList{
        {"scale", std::vector<float>{scale, 0.5f}}, {"align_corners", align}, {"align_mode", mode}};
  };
  const std::string type = "bilinear_interp_v2", why = "one element and a fraction";
  EXPECT_NE(ErrorOfExport(Resized(type, attrs(0.3f, 0, false)), {{"x", x}}).find(why),
            std::string::npos);
  ExpectSame(Resized(type, attrs(0.25f, 0, false)), {{"x", x}}, {"y"});
  ExpectSame(Resized(type, attrs(0.3f, 1, false)), {{"x", x}}, {"y"});
  ExpectSame(Resized(type, attrs(0.3f, 0, true)), {{"x", x}}, {"y"});
  // One element of a bicubic axis lies elsewhere in ONNX; of an unknown size one may be left.
  ProgramDesc open = Resized("bicubic_interp_v2", attrs(0.5f, 0, false));
  open.Root().Var("x").SetMeta({VarType::kLoDTensor, x.dtype(), {1, 1, -1, -1}, 0});
  EXPECT_NE(ErrorOfExport(open, {{"x", x}}).find("of unknown size that shrinks"),
            std::string::npos);
}

}  // namespace coracle::onnx_round_trip_test
