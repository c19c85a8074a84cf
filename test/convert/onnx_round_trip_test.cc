// What is exported and imported again computes what the program computes.
#include <coracle/convert/onnx_export.h>
#include <coracle/convert/onnx_import.h>
#include <coracle/coracle.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "test/real_models.h"

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

// What is exported and imported gives the very same elements.
void ExpectSame(ProgramDesc program, const std::map<std::string, Tensor>& feeds,
                const std::vector<std::string>& fetches) {
  AddEnds(program, feeds, fetches);
  EXPECT_EQ(RoundTrip(program, Scope(), feeds), 0);
}

// What the exported and imported program computes.
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

}  // namespace coracle::onnx_round_trip_test
