// What is exported and imported again computes what the program computes.
#include <coracle/convert/onnx_export.h>
#include <coracle/convert/onnx_import.h>
#include <coracle/coracle.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

// The program with feeds and fetches: what is exported and imported gives the very same elements.
void ExpectSame(ProgramDesc program, const std::map<std::string, Tensor>& feeds,
                const std::vector<std::string>& fetches) {
  std::vector<std::string> names;
  for (const auto& [name, value] : feeds) {
    names.push_back(name);
    program.Root().Var(name).SetMeta({VarType::kLoDTensor, value.dtype(), value.shape(), 0});
  }
  SetFeedsAndFetches(program, names, fetches);
  EXPECT_EQ(RoundTrip(program, Scope(), feeds), 0);
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

}  // namespace coracle::onnx_round_trip_test
