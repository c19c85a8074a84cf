#include <coracle/optimizer/optimizer.h>
#include <fmt/format.h>

namespace coracle {
namespace {

void RequireRate(const char* optimizer, const char* name, double value) {
  if (value >= 0 && value < 1) return;
  ThrowInvalid(fmt::format("{}: {} must lie in [0, 1), got {}", optimizer, name, value));
}

}  // namespace

Sgd::Sgd(const SgdOptions& options) : Optimizer(options.learning_rate) {}

void Sgd::AppendUpdate(ProgramDesc& main, ProgramDesc&, const ParamAndGrad& pair,
                       const std::string& learning_rate) {
  main.Root().AppendOp(
      "sgd", {{"Param", {pair.param}}, {"Grad", {pair.grad}}, {"LearningRate", {learning_rate}}},
      {{"ParamOut", {pair.param}}});
}

Momentum::Momentum(const MomentumOptions& options)
    : Optimizer(options.learning_rate), options_(options) {
  RequireRate("momentum", "momentum", options.momentum);
}

void Momentum::AppendUpdate(ProgramDesc& main, ProgramDesc& startup, const ParamAndGrad& pair,
                            const std::string& learning_rate) {
  const std::string velocity = Accumulator(main, startup, pair.param, "velocity", 0);
  main.Root().AppendOp(
      "momentum",
      {{"Param", {pair.param}},
       {"Grad", {pair.grad}},
       {"Velocity", {velocity}},
       {"LearningRate", {learning_rate}}},
      {{"ParamOut", {pair.param}}, {"VelocityOut", {velocity}}},
      {{"mu", static_cast<float>(options_.momentum)}, {"use_nesterov", options_.use_nesterov}});
}

Adagrad::Adagrad(const AdagradOptions& options)
    : Optimizer(options.learning_rate), options_(options) {
  const auto require = [](const char* name, double value) {
    if (value >= 0) return;
    ThrowInvalid(fmt::format("adagrad: {} must not be negative, got {}", name, value));
  };
  require("epsilon", options.epsilon);
  require("initial_accumulator_value", options.initial_accumulator_value);
}

void Adagrad::AppendUpdate(ProgramDesc& main, ProgramDesc& startup, const ParamAndGrad& pair,
                           const std::string& learning_rate) {
  const std::string moment =
      Accumulator(main, startup, pair.param, "moment", options_.initial_accumulator_value);
  main.Root().AppendOp("adagrad",
                       {{"Param", {pair.param}},
                        {"Grad", {pair.grad}},
                        {"Moment", {moment}},
                        {"LearningRate", {learning_rate}}},
                       {{"ParamOut", {pair.param}}, {"MomentOut", {moment}}},
                       {{"epsilon", static_cast<float>(options_.epsilon)}});
}

Adam::Adam(const AdamOptions& options) : Optimizer(options.learning_rate), options_(options) {
  RequireRate("adam", "beta1", options.beta1);
  RequireRate("adam", "beta2", options.beta2);
  if (!(options.epsilon >= 0)) {
    ThrowInvalid(fmt::format("adam: epsilon must not be negative, got {}", options.epsilon));
  }
}

void Adam::AppendUpdate(ProgramDesc& main, ProgramDesc& startup, const ParamAndGrad& pair,
                        const std::string& learning_rate) {
  const Shape one = {1};
  const std::string m1 = Accumulator(main, startup, pair.param, "moment1", 0);
  const std::string m2 = Accumulator(main, startup, pair.param, "moment2", 0);
  const std::string b1 =
      Accumulator(main, startup, pair.param, "beta1_pow_acc", options_.beta1, &one);
  const std::string b2 =
      Accumulator(main, startup, pair.param, "beta2_pow_acc", options_.beta2, &one);
  main.Root().AppendOp("adam",
                       {{"Param", {pair.param}},
                        {"Grad", {pair.grad}},
                        {"LearningRate", {learning_rate}},
                        {"Moment1", {m1}},
                        {"Moment2", {m2}},
                        {"Beta1Pow", {b1}},
                        {"Beta2Pow", {b2}}},
                       {{"ParamOut", {pair.param}},
                        {"Moment1Out", {m1}},
                        {"Moment2Out", {m2}},
                        {"Beta1PowOut", {b1}},
                        {"Beta2PowOut", {b2}}},
                       {{"beta1", static_cast<float>(options_.beta1)},
                        {"beta2", static_cast<float>(options_.beta2)},
                        {"epsilon", static_cast<float>(options_.epsilon)},
                        {"lazy_mode", options_.lazy_mode}});
}

}  // namespace coracle
