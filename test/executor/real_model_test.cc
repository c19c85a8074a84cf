// Models that Paddle exported, against results of an independent interpreter.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/writer.h>
#include <coracle/operators/operators.h>
#include <coracle/test/real_models.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace coracle::real_model_test {

// Largest difference of the model's first result from `golden`.
double Difference(const std::string& model, const std::string& input, const std::string& golden,
                  const CompileOptions& options) {
  const std::string data = TestDataDirectory() + "/paddle/";
  Scope scope;
  InferenceModel loaded = LoadInferenceModel(data + model + "/inference.pdmodel", scope);
  // The size of the images that it was exported with does not bind it.
  VarDesc* image = loaded.program.Root().FindVarRecursive(loaded.feed_names[0]);
  image->SetShape({-1, 3, -1, -1});
  PreparedProgram program = Executor(options).Prepare(loaded.program);
  const Tensor& out = program.Run(scope, {ReadNpy(data + "golden/" + input)})[0];
  const Tensor expected = ReadNpy(data + "golden/" + golden);
  EXPECT_EQ(expected.numel(), out.numel());
  double largest = 0;
  for (int64_t i = 0; i < std::min(expected.numel(), out.numel()); ++i) {
    const double difference = std::abs(expected.data<float>()[i] - out.data<float>()[i]);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

bool Absent() { return TestDataDirectory().empty(); }

TEST(RealModel, TextDirection) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  const std::string model = "ch_ppocr_mobile_v2.0_cls", golden = model + "_out_";
  EXPECT_LT(Difference(model, "cls_in_rot0.npy", golden + "rot0.npy", {}), 1e-4);
  EXPECT_LT(Difference(model, "cls_in_rot180.npy", golden + "rot180.npy", {}), 1e-4);
  EXPECT_LT(Difference(model, "cls_in_rot0.npy", golden + "rot0.npy",
                       {.kernels = KernelMode::kReference}),
            1e-4);
}

// At the size that the program declares, where a pooling window sticks out of its image.
TEST(RealModel, DeclaredSize) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  Scope scope;
  InferenceModel loaded = LoadInferenceModel(
      TestDataDirectory() + "/paddle/ch_ppocr_mobile_v2.0_cls/inference.pdmodel", scope);
  PreparedProgram program = Executor().Prepare(loaded.program);
  const Tensor& out = program.Run(scope, {Tensor::Zeros(DType::kFloat32, {2, 3, 32, 100})})[0];
  ASSERT_EQ("[2, 2]", out.shape().ToString());
  EXPECT_NEAR(1, out.data<float>()[0] + out.data<float>()[1], 1e-5);
}

TEST(RealModel, TextDetection) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  EXPECT_LT(Difference("ch_PP-OCRv3_det", "det_in.npy", "ch_PP-OCRv3_det_out.npy", {}), 2e-3);
}

// The scores that a result is made of: a softmax or sigmoid may be saturated, and the best path has
// no gradient.
std::string ScoresOf(const BlockDesc& block, std::string name) {
  const std::map<std::string, std::string> through = {{"softmax", "X"},
                                                      {"sigmoid", "X"},
                                                      {"scale", "X"},
                                                      {"assign", "X"},
                                                      {"viterbi_decode", "Input"}};
  for (bool found = true; found;) {
    found = false;
    for (const OpDesc* op : block.Uses(name).writers) {
      const auto slot = through.find(op->type());
      if (slot == through.end()) continue;
      name = op->Input(slot->second)[0];
      found = true;
      break;
    }
  }
  return name;
}

// Parameters, without the running statistics of batch norms and the like, which get no gradient.
std::vector<std::string> Differentiable(const ProgramDesc& program) {
  std::set<std::string> closed;
  program.ForEachOp([&](const OpDesc& op) {
    for (const Slot& slot : op.inputs()) {
      const SlotDef* def = DefaultOps().Get(op.type()).FindInput(slot.name);
      if (def && def->no_gradient) closed.insert(slot.args.begin(), slot.args.end());
    }
  });
  std::vector<std::string> names = PersistableNames(program);
  std::erase_if(names, [&](const std::string& name) { return closed.count(name) > 0; });
  return names;
}

// Fast kernels give what the reference ones do.
TEST(RealModel, FastAgainstReference) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  ForEachModel(64, [](DrawnModel& model) {
    const auto fast = Executor().Run(model.program, model.scope, model.feeds, model.fetches);
    const auto reference = Executor({.kernels = KernelMode::kReference})
                               .Run(model.program, model.scope, model.feeds, model.fetches);
    ASSERT_FALSE(fast.empty());
    for (size_t k = 0; k < fast.size(); ++k) {
      ASSERT_EQ(fast[k].shape(), reference[k].shape());
      if (fast[k].dtype() != DType::kFloat32) {
        EXPECT_EQ(std::memcmp(fast[k].raw(), reference[k].raw(), fast[k].nbytes()), 0);
        continue;
      }
      double largest = 0, difference = 0;
      for (int64_t i = 0; i < fast[k].numel(); ++i) {
        const double a = fast[k].data<float>()[i], b = reference[k].data<float>()[i];
        ASSERT_TRUE(std::isfinite(b));
        largest = std::max(largest, std::abs(b));
        difference = std::max(difference, std::abs(a - b));
      }
      EXPECT_LE(difference, 1e-5 * largest);
    }
  });
}

// The passes do not change a model's results, up to rounding in double, because sums are taken in
// another order.
TEST(RealModel, PassesInDouble) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  ForEachModel(32, [](DrawnModel& model) {
    const ProgramDesc program = InDouble(model.program);
    const auto in_double = [](const Tensor& x) {
      return x.dtype() == DType::kFloat32 ? x.Cast(DType::kFloat64) : x;
    };
    for (const std::string& name : PersistableNames(program))
      model.scope.Set(name, in_double(std::get<Tensor>(*model.scope.Find(name))));
    std::vector<std::string> names;
    std::vector<Tensor> fed;
    for (auto& [name, value] : model.feeds) {
      const LoD lod = value.lod();
      value = in_double(value);
      value.lod() = lod;
      names.push_back(name);
      fed.push_back(value);
    }
    const auto plain = Executor({.kernels = KernelMode::kReference, .optimize = false})
                           .Run(program, model.scope, model.feeds, model.fetches);
    const auto expect_same = [&](const std::vector<Tensor>& got) {
      for (size_t k = 0; k < plain.size(); ++k) {
        ASSERT_EQ(got[k].ToString(), plain[k].ToString());
        EXPECT_EQ(got[k].lod(), plain[k].lod());
        const Tensor a = got[k].Cast(DType::kFloat64), b = plain[k].Cast(DType::kFloat64);
        double largest = 0, difference = 0;
        for (int64_t i = 0; i < a.numel(); ++i) {
          largest = std::max(largest, std::abs(b.data<double>()[i]));
          difference = std::max(difference, std::abs(a.data<double>()[i] - b.data<double>()[i]));
        }
        EXPECT_LE(difference, 1e-11 * largest);
      }
    };
    expect_same(Executor().Run(program, model.scope, model.feeds, model.fetches));
    expect_same(
        Executor().PrepareFrozen(program, model.scope, names, model.fetches).Run(model.scope, fed));
  });
}

// Gradients of the scores with respect to parameters and image, in double, against differences.
TEST(RealModel, GradientsAgainstDifferences) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  ForEachModel(32, [](DrawnModel& model) {
    BlockDesc& root = model.program.Root();
    root.ForEachOp([](OpDesc& op) {
      if (op.HasAttr("is_test") && op.type() == "while") op.SetAttr("is_test", false);
    });
    const Writer writer(root, DefaultOps(), {.prefix = "check"});
    std::vector<Variable> parts;
    for (const std::string& fetch : model.fetches) {
      const Variable scores = writer.Var(ScoresOf(root, fetch));
      ASSERT_TRUE(IsFloating(scores.desc().dtype())) << scores.name();
      parts.push_back(Mean(Square(scores) + 0.3 * scores));
    }
    Variable loss = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) loss = loss + parts[i];
    // Some gradients are 1e-7 of the loss, whose differences have as many digits less.
    CheckGradientOptions options{
        .loss = loss.name(), .feeds = model.feeds, .scope = &model.scope, .tolerance = 1e-4};
    const std::vector<std::string> names = Differentiable(model.program);
    options.wrt.push_back(names[names.size() / 3]);
    for (const auto& [name, value] : model.feeds) {
      if (value.dtype() == DType::kFloat32) options.wrt.push_back(name);
    }
    const CheckGradientReport report = CheckGradient(model.program, options);
    EXPECT_TRUE(report.passed()) << report.ToString();
    for (const GradientCheck& check : report.checks) EXPECT_NE(check.gradient, "") << check.var;
  });
}

}  // namespace coracle::real_model_test
