#include <coracle/framework/op/writer.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/internal/optimizer_kinds.h>

namespace coracle {
namespace {

constexpr char kRate[] = "multiplies the gradient";

Fields<SgdOptions> FieldsOf(const SgdOptions&) {
  return Fields<SgdOptions>("Stochastic gradient descent.")
      .Add("learning_rate", &SgdOptions::learning_rate, kRate);
}

Fields<MomentumOptions> FieldsOf(const MomentumOptions&) {
  using O = MomentumOptions;
  return Fields<O>("Descent along a velocity, which sums gradients.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("momentum", &O::momentum, "share of the velocity that a step keeps")
      .From(0, 1)
      .Add("use_nesterov", &O::use_nesterov, "step from where the velocity leads")
      .Add("velocity_holds_rate", &O::velocity_holds_rate,
           "the velocity sums rate * gradient, as Caffe's SGD and Nesterov have it, so that a "
           "fall of the rate does not change what it carries on");
}

Fields<LarsMomentumOptions> FieldsOf(const LarsMomentumOptions&) {
  using O = LarsMomentumOptions;
  return Fields<O>(
             "Momentum with a rate for each parameter, by the ratio of its norm and its "
             "gradient's.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("momentum", &O::momentum, "share of the velocity that a step keeps")
      .From(0, 1)
      .Add("lars_coeff", &O::lars_coeff, "multiplies that ratio")
      .From(0)
      .Add("lars_weight_decay", &O::lars_weight_decay, "share of the parameter that decays")
      .From(0)
      .Add("epsilon", &O::epsilon, "joins the divisor")
      .From(0);
}

// Chen et al.: "Symbolic Discovery of Optimization Algorithms", 2023.
Fields<LionOptions> FieldsOf(const LionOptions&) {
  using O = LionOptions;
  return Fields<O>("Steps of one size: the sign of a mean of gradients.")
      .Add("learning_rate", &O::learning_rate, "size of a step")
      .Add("beta1", &O::beta1, "share of the moment in the mean whose sign counts")
      .From(0, 1)
      .Add("beta2", &O::beta2, "share of the moment that a step keeps")
      .From(0, 1)
      .Add("weight_decay", &O::weight_decay, "share of the parameter that joins the sign")
      .From(0);
}

Fields<DpsgdOptions> FieldsOf(const DpsgdOptions&) {
  using O = DpsgdOptions;
  return Fields<O>("Differentially private descent: clipped gradients with noise.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("clip", &O::clip, "largest norm of a gradient")
      .From(1e-30)
      .Add("batch_size", &O::batch_size, "divides the noise")
      .From(1e-30)
      .Add("sigma", &O::sigma, "standard deviation of the noise")
      .From(0);
}

Fields<ProximalOptions> FieldsOf(const ProximalOptions&) {
  using O = ProximalOptions;
  return Fields<O>("A step of descent, then a proximal step for l1 and l2.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("l1", &O::l1, "weight of the sum of |parameter|")
      .From(0)
      .Add("l2", &O::l2, "weight of the sum of parameter^2")
      .From(0);
}

template <class Options>
const Options& Checked(const char* kind, const Options& options) {
  return FieldsOf(options).Check(kind, options);
}

}  // namespace

OneOpOptimizer::OneOpOptimizer(double learning_rate, std::string type, std::vector<State> state,
                               AttrList attrs, bool needs_rate)
    : Optimizer(learning_rate),
      type_(std::move(type)),
      state_(std::move(state)),
      attrs_(std::move(attrs)),
      needs_rate_(needs_rate) {}

void OneOpOptimizer::AppendUpdate(const UpdateContext& update) {
  const Shape one = {1};
  SlotList inputs = {{"Param", {update.param}}, {"Grad", {update.grad}}};
  if (needs_rate_ || !update.unit_rate) inputs.push_back({"LearningRate", {update.learning_rate}});
  SlotList outputs = {{"ParamOut", {update.param}}};
  std::vector<std::string> names;
  for (const State& state : state_) {
    const std::string name =
        Accumulator(update, state.suffix, state.value, state.scalar ? &one : nullptr);
    inputs.push_back({state.in, {name}});
    if (state.out) outputs.push_back({state.out, {name}});
    names.push_back(name);
  }
  Writer(update.block, DefaultOps()).Append(type_, std::move(inputs), std::move(outputs), attrs_);
  FinishUpdate(update.block, names);
}

Sgd::Sgd(const SgdOptions& o) : OneOpOptimizer(o.learning_rate, "sgd", {}, {}) {}

Momentum::Momentum(const MomentumOptions& o)
    : OneOpOptimizer(Checked("momentum", o).learning_rate, "momentum",
                     {{"Velocity", "VelocityOut", "velocity"}},
                     {FloatAttr("mu", o.momentum), {"use_nesterov", o.use_nesterov}}) {
  if (o.velocity_holds_rate) attrs().push_back({"velocity_holds_rate", true});
}

LarsMomentum::LarsMomentum(const LarsMomentumOptions& o)
    : OneOpOptimizer(
          Checked("lars_momentum", o).learning_rate, "lars_momentum",
          {{"Velocity", "VelocityOut", "velocity"}},
          {FloatAttr("mu", o.momentum), FloatAttr("lars_coeff", o.lars_coeff),
           FloatAttr("lars_weight_decay", o.lars_weight_decay), FloatAttr("epsilon", o.epsilon)}) {}

Lion::Lion(const LionOptions& o)
    : OneOpOptimizer(Checked("lion", o).learning_rate, "lion", {{"Moment", "MomentOut", "moment"}},
                     {FloatAttr("beta1", o.beta1), FloatAttr("beta2", o.beta2),
                      FloatAttr("weight_decay", o.weight_decay)}) {}

Dpsgd::Dpsgd(const DpsgdOptions& o)
    : OneOpOptimizer(Checked("dpsgd", o).learning_rate, "dpsgd", {},
                     {FloatAttr("clip", o.clip), FloatAttr("batch_size", o.batch_size),
                      FloatAttr("sigma", o.sigma)}) {}

ProximalGd::ProximalGd(const ProximalOptions& o)
    : OneOpOptimizer(Checked("proximal_gd", o).learning_rate, "proximal_gd", {},
                     {FloatAttr("l1", o.l1), FloatAttr("l2", o.l2)}) {}

ProximalAdagrad::ProximalAdagrad(const ProximalOptions& o)
    : OneOpOptimizer(Checked("proximal_adagrad", o).learning_rate, "proximal_adagrad",
                     {{"Moment", "MomentOut", "moment"}},
                     {FloatAttr("l1", o.l1), FloatAttr("l2", o.l2)}) {}

OptimizerEntries SimpleOptimizers() {
  return {{"sgd", KindOf<Sgd>(FieldsOf(SgdOptions()))},
          {"momentum", KindOf<Momentum>(FieldsOf(MomentumOptions()))},
          {"lars_momentum", KindOf<LarsMomentum>(FieldsOf(LarsMomentumOptions()))},
          {"lion", KindOf<Lion>(FieldsOf(LionOptions()))},
          {"dpsgd", KindOf<Dpsgd>(FieldsOf(DpsgdOptions()))},
          {"proximal_gd", KindOf<ProximalGd>(FieldsOf(ProximalOptions()))},
          {"proximal_adagrad", KindOf<ProximalAdagrad>(FieldsOf(ProximalOptions()))}};
}

}  // namespace coracle
