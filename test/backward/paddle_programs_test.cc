// Programs that Paddle exported, made trainable again: gradient ops are appended and verify, and
// with weights the gradients agree with differences.

#include <coracle/backward/backward.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <set>

namespace coracle::paddle_programs_test {

// All parameters to be trained: every persistable tensor of numbers, except running statistics.
std::vector<std::string> TrainableOf(const BlockDesc& root) {
  std::set<std::string> statistics;
  for (size_t i = 0; i < root.NumOps(); ++i) {
    for (const char* slot : {"MeanOut", "VarianceOut"}) {
      for (const std::string& name : root.op(i).Output(slot)) statistics.insert(name);
    }
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    if (var.persistable() && var.type() == VarType::kLoDTensor && IsFloating(var.dtype()) &&
        !statistics.count(var.name())) {
      names.push_back(var.name());
    }
  }
  return names;
}

// Without feed and fetch, with is_test off, and the loss mean(out * out) of the first result that
// is a floating-point tensor. Where all are integers it is of the scores that viterbi_decode reads.
std::string MakeTrainable(ProgramDesc& program) {
  BlockDesc& root = program.Root();
  std::string out;
  for (size_t i = 0; i < root.NumOps(); ++i) {
    OpDesc& op = root.op(i);
    if (op.HasAttr("is_test")) op.SetAttr("is_test", false);
    if (op.type() != "fetch" || !out.empty()) continue;
    const VarDesc* var = root.FindVar(op.Input("X")[0]);
    if (var && IsFloating(var->dtype())) out = var->name();
  }
  for (size_t i = 0; i < root.NumOps() && out.empty(); ++i) {
    if (root.op(i).type() == "viterbi_decode") out = root.op(i).Input("Input")[0];
  }
  root.RemoveOpsIf([](const OpDesc& op) { return op.type() == "feed" || op.type() == "fetch"; });
  EXPECT_EQ(program.Parameters(), TrainableOf(root));
  // The file declares the shapes of inference.
  for (size_t i = 0; i < root.NumOps(); ++i) InferOp(root, root.op(i), DefaultOps());
  if (out.empty()) throw InternalError("no result can be differentiated");
  auto append = [&](const char* type, SlotList in, const std::string& to) {
    InferOp(root, root.AppendOp(type, std::move(in), {{"Out", {to}}}), DefaultOps());
  };
  append("elementwise_mul", {{"X", {out}}, {"Y", {out}}}, "out_squared");
  append("mean", {{"X", {"out_squared"}}}, "the_loss");
  return "the_loss";
}

std::string Data() { return TestDataDirectory() + "/paddle/"; }
bool Absent() { return TestDataDirectory().empty(); }

TEST(PaddlePrograms, BackwardOfEveryProgram) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  int differentiated = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Data())) {
    const std::string file = entry.path().string() + "/inference.pdmodel";
    if (!std::filesystem::exists(file)) continue;
    SCOPED_TRACE(entry.path().filename().string());
    ProgramDesc program = ReadProgram(file);
    for (const VerifyProblem& p : Verify(program, DefaultOps())) ADD_FAILURE() << p.ToString();
    const std::string loss = MakeTrainable(program);
    const auto pairs = AppendBackward(Variable::Of(program.Root(), loss));
    for (const VerifyProblem& p : Verify(program, DefaultOps())) {
      if (p.severity == VerifyProblem::Severity::kError) ADD_FAILURE() << p.ToString();
    }
    size_t reached = 0;
    for (const ParamAndGrad& pair : pairs) reached += !pair.grad.empty();
    EXPECT_GT(reached, pairs.size() / 2);
    std::cout << entry.path().filename().string() << ": " << reached << " of " << pairs.size()
              << " parameters have gradients\n";
    ++differentiated;
  }
  EXPECT_EQ(differentiated, 12);
}

// Every `stride`-th parameter of a program with weights.
void CheckWithWeights(const std::string& model, size_t parameters, size_t stride,
                      const Shape& input) {
  Scope scope;
  InferenceModel loaded = LoadInferenceModel(Data() + model + "/inference.pdmodel", scope);
  ProgramDesc& program = loaded.program;
  program.Root().FindVar(loaded.feed_names[0])->SetShape({-1, 3, -1, -1});
  CheckGradientOptions options;
  options.loss = MakeTrainable(program);
  const std::vector<std::string> all = program.Parameters();
  EXPECT_EQ(all.size(), parameters);
  for (size_t i = 0; i < all.size(); i += stride) options.wrt.push_back(all[i]);
  options.scope = &scope;
  Tensor image(DType::kFloat64, input);
  const Philox random(3, 5, 0);
  for (int64_t i = 0; i < image.numel(); ++i)
    image.data<double>()[i] = random.Normal(static_cast<uint64_t>(i));
  options.feeds[loaded.feed_names[0]] = image;
  options.tolerance = 1e-5;
  const CheckGradientReport report = CheckGradient(program, options);
  EXPECT_TRUE(report.passed()) << report.ToString();
}

TEST(PaddlePrograms, CheckGradientOfTheTextDirectionModel) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  CheckWithWeights("ch_ppocr_mobile_v2.0_cls", 143, 36, {2, 3, 32, 32});
}

TEST(PaddlePrograms, CheckGradientOfTheTextDetectionModel) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  CheckWithWeights("ch_PP-OCRv3_det", 190, 48, {4, 3, 32, 32});
}
}  // namespace coracle::paddle_programs_test
