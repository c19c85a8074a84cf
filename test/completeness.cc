#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

namespace coracle {
namespace {

// The record of this run's tests, for the check at its end.
std::set<std::string>& ProvokedConstraints() {
  static std::set<std::string> ids;
  return ids;
}
std::set<std::string>& CheckedGradients() {
  static std::set<std::string> types;
  return types;
}
std::set<std::string>& CheckedExpansions() {
  static std::set<std::string> types;
  return types;
}
std::set<std::string>& CheckedHigherGradients() {
  static std::set<std::string> types;
  return types;
}

// After a whole run: every constraint that an op declares was provoked (where a gradient op repeats
// its forward op's, by one of the two), every gradient checked, and the gradients of gradients of
// every op that can be differentiated twice.
class Completeness : public ::testing::Environment {
 public:
  void TearDown() override {
    if (::testing::GTEST_FLAG(filter) != "*") return;
    for (const std::string& type : DefaultOps().Types()) {
      const OpSpec& def = DefaultOps().Get(type);
      for (const ConstraintDef& constraint : def.constraints) {
        const std::string suffix = "." + constraint.id;
        EXPECT_TRUE(ProvokedConstraints().count(type + suffix) ||
                    ProvokedConstraints().count(constraint.like + suffix))
            << "no test provokes " << type << suffix;
      }
      bool gradient_op = type.ends_with("_grad");
      const bool has_gradient = def.HasGradient() || def.Expands();
      EXPECT_TRUE(gradient_op || !has_gradient || CheckedGradients().count(type))
          << "no test checks the gradient of " << type;
      EXPECT_TRUE(!def.Expands() || CheckedExpansions().count(type))
          << "no test checks the expansion of " << type;
      EXPECT_TRUE(gradient_op || !HasSecondGradient(type) || CheckedHigherGradients().count(type))
          << "no test checks second gradients of " << type;
    }
  }

 private:
  // A gradient op without a gradient states the reason itself.
  static bool HasSecondGradient(const std::string& type) {
    const OpSpec* grad = DefaultOps().Find(type + "_grad");
    return DefaultOps().Get(type).HasGradient() && (!grad || grad->HasGradient());
  }
};

[[maybe_unused]] const auto* const kCompleteness =
    ::testing::AddGlobalTestEnvironment(new Completeness);

}  // namespace

void NoteConstraint(const std::string& message) {
  static const std::regex pattern("\\[([a-z0-9_]+\\.C[0-9]+)\\]");
  std::smatch match;
  if (std::regex_search(message, match, pattern)) ProvokedConstraints().insert(match[1]);
}

void NoteCheckedGradient(const std::string& type) { CheckedGradients().insert(type); }

void NoteExpansion(const std::string& type) { CheckedExpansions().insert(type); }

void ExpectConstraint(const std::string& message, const std::string& id) {
  EXPECT_NE(message.find("[" + id + "]"), std::string::npos)
      << "the message lacks '" << id << "': " << message;
  NoteConstraint(message);
}

void GradientIsCheckedIn(const std::string& type, const std::string& test) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  std::ifstream file(std::string(sources ? sources : "..") + "/" + test);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("\"" + type + "\""), std::string::npos) << test << " has no " << type;
  NoteCheckedGradient(type);
}

void HigherGradientsAreChecked(const std::string& type) { CheckedHigherGradients().insert(type); }

void CheckZeroGradient(const std::string& type) {
  NoteCheckedGradient(type);
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetShape({2});
  const OpDesc& op = block.AppendOp(type, {{"X", {"x"}}}, {{"Out", {"o"}}});
  InferOp(block, op, DefaultOps());
  GradientContext::Request request;
  request.op = &op;
  request.block = &block;
  request.output_grads = {"o@GRAD"};
  request.input_grads = {"x@GRAD"};
  GradientContext context(DefaultOps(), request);
  RunGradient(DefaultOps().Get(type), context);
  for (const auto& appended : context.ReleaseOps()) block.AppendOp(*appended);
  VarValues env;
  env["x"] = Tensor::Of<float>({2}, {-1.25f, 2.5f});
  env["o@GRAD"] = Tensor::Of<float>({2}, {3, -4});
  Interpret(block, DefaultOps(), env);
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("x@GRAD")), Tensor::Zeros(DType::kFloat32, {2})))
      << type;
}

void ExpectRefused(const std::string& type,
                   const std::vector<std::pair<std::string, VarMeta>>& inputs,
                   const AttrList& attrs, const std::string& id) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  OpDesc op(type, {}, {}, attrs);
  for (const auto& [slot, meta] : inputs) {
    std::vector<std::string> args = op.Input(slot);
    args.push_back(slot + "." + std::to_string(args.size()));
    block.Var(args.back()).SetMeta(meta);
    op.SetInput(slot, args);
  }
  for (const SlotDef& slot : DefaultOps().Get(type).outputs) {
    if (!op.HasOutput(slot.name)) op.SetOutput(slot.name, {slot.name + ".out"});
  }
  std::string message = "nothing was refused";
  try {
    InferOp(block, block.AppendOp(op), DefaultOps());
  } catch (const Error& e) {
    message = e.message();
  }
  ExpectConstraint(message, id);
}

}  // namespace coracle
