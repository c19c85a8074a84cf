// Optimizers that divide by what they have seen of a gradient.

#include <coracle/optimizer/internal/optimizer_kinds.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/regularizer/regularizer.h>

namespace coracle {
namespace {

constexpr char kRate[] = "multiplies the update";
constexpr char kEpsilon[] = "joins the divisor";
constexpr char kBeta1[] = "share of the mean of gradients that a step keeps";
constexpr char kBeta2[] = "share of the mean of squares that a step keeps";

Fields<AdagradOptions> FieldsOf(const AdagradOptions&) {
  using O = AdagradOptions;
  return Fields<O>("Divides by the root of the sum of squared gradients.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("epsilon", &O::epsilon, kEpsilon)
      .From(0)
      .Add("initial_accumulator_value", &O::initial_accumulator_value, "what the sum begins with")
      .From(0);
}

Fields<DecayedAdagradOptions> FieldsOf(const DecayedAdagradOptions&) {
  using O = DecayedAdagradOptions;
  return Fields<O>("Divides by the root of a mean of squared gradients: Caffe's RMSProp.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("decay", &O::decay, "share of the mean that a step keeps: Caffe's rms_decay")
      .From(0, 1)
      .Add("epsilon", &O::epsilon, "joins the divisor: Caffe's delta")
      .From(0);
}

Fields<AdadeltaOptions> FieldsOf(const AdadeltaOptions&) {
  using O = AdadeltaOptions;
  return Fields<O>("Scales gradients to the size of past updates.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("epsilon", &O::epsilon, "joins both roots")
      .From(0)
      .Add("rho", &O::rho, "share of the means that a step keeps")
      .From(0, 1);
}

Fields<AdamOptions> FieldsOf(const AdamOptions&) {
  using O = AdamOptions;
  return Fields<O>("Mean of gradients over the root of the mean of their squares.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("beta1", &O::beta1, kBeta1)
      .From(0, 1)
      .Add("beta2", &O::beta2, kBeta2)
      .From(0, 1)
      .Add("epsilon", &O::epsilon, kEpsilon)
      .From(0)
      .Add("lazy_mode", &O::lazy_mode,
           "a sparse gradient updates its own rows and their moments only")
      .Add("use_epsilon_hat", &O::use_epsilon_hat,
           "epsilon joins the root as it is (Caffe, Paddle before 2.0), not corrected for the "
           "bias");
}

Fields<AdamWOptions> FieldsOf(const AdamWOptions&) {
  using O = AdamWOptions;
  return Fields<O>("Adam with decoupled weight decay: parameter *= 1 - rate * weight_decay.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("weight_decay", &O::weight_decay, "see above; of parameters that decay")
      .From(0)
      .Add("beta1", &O::beta1, kBeta1)
      .From(0, 1)
      .Add("beta2", &O::beta2, kBeta2)
      .From(0, 1)
      .Add("epsilon", &O::epsilon, kEpsilon)
      .From(0);
}

Fields<AdamaxOptions> FieldsOf(const AdamaxOptions&) {
  using O = AdamaxOptions;
  return Fields<O>("Adam with the largest gradient in place of the mean of squares.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("beta1", &O::beta1, kBeta1)
      .From(0, 1)
      .Add("beta2", &O::beta2, "share of the largest gradient that a step keeps")
      .From(0, 1)
      .Add("epsilon", &O::epsilon, kEpsilon)
      .From(0);
}

Fields<RmspropOptions> FieldsOf(const RmspropOptions&) {
  using O = RmspropOptions;
  return Fields<O>("Divides by the root of the mean of squares, with a velocity.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("rho", &O::rho, kBeta2)
      .From(0, 1)
      .Add("epsilon", &O::epsilon, kEpsilon)
      .From(0)
      .Add("momentum", &O::momentum, "share of the velocity that a step keeps")
      .From(0, 1)
      .Add("centered", &O::centered, "subtract the square of the mean of gradients");
}

Fields<FtrlOptions> FieldsOf(const FtrlOptions&) {
  using O = FtrlOptions;
  return Fields<O>("Follow the regularized leader (McMahan et al. 2013).")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("l1", &O::l1, "weight of the sum of |parameter|")
      .From(0)
      .Add("l2", &O::l2, "weight of the sum of parameter^2")
      .From(0)
      .Add("lr_power", &O::lr_power, "power of the sum of squares that divides")
      .In({-HUGE_VAL, 0, true, false, "must be finite and at most 0"});
}

Fields<LambOptions> FieldsOf(const LambOptions&) {
  using O = LambOptions;
  return Fields<O>("Adam's update, scaled to the norm of the parameter.")
      .Add("learning_rate", &O::learning_rate, kRate)
      .Add("lamb_weight_decay", &O::lamb_weight_decay,
           "share of a parameter that decays which joins its update")
      .From(0)
      .Add("beta1", &O::beta1, kBeta1)
      .From(0, 1)
      .Add("beta2", &O::beta2, kBeta2)
      .From(0, 1)
      .Add("epsilon", &O::epsilon, kEpsilon)
      .From(0);
}

template <class Options>
const Options& Checked(const char* kind, const Options& options) {
  return FieldsOf(options).Check(kind, options);
}

}  // namespace

Adagrad::Adagrad(const AdagradOptions& o)
    : OneOpOptimizer(Checked("adagrad", o).learning_rate, "adagrad",
                     {{"Moment", "MomentOut", "moment", o.initial_accumulator_value}},
                     {FloatAttr("epsilon", o.epsilon)}) {}

DecayedAdagrad::DecayedAdagrad(const DecayedAdagradOptions& o)
    : OneOpOptimizer(Checked("decayed_adagrad", o).learning_rate, "decayed_adagrad",
                     {{"Moment", "MomentOut", "moment"}},
                     {FloatAttr("decay", o.decay), FloatAttr("epsilon", o.epsilon)}) {}

Adadelta::Adadelta(const AdadeltaOptions& o)
    : OneOpOptimizer(Checked("adadelta", o).learning_rate, "adadelta",
                     {{"AvgSquaredGrad", "AvgSquaredGradOut", "_avg_squared_grad"},
                      {"AvgSquaredUpdate", "AvgSquaredUpdateOut", "_avg_squared_update"}},
                     {FloatAttr("rho", o.rho), FloatAttr("epsilon", o.epsilon)}, false) {}

Adam::Adam(const AdamOptions& o)
    : OneOpOptimizer(Checked("adam", o).learning_rate, "adam",
                     {{"Moment1", "Moment1Out", "moment1"},
                      {"Moment2", "Moment2Out", "moment2"},
                      {"Beta1Pow", "Beta1PowOut", "beta1_pow_acc", o.beta1, true},
                      {"Beta2Pow", "Beta2PowOut", "beta2_pow_acc", o.beta2, true}},
                     {FloatAttr("beta1", o.beta1),
                      FloatAttr("beta2", o.beta2),
                      FloatAttr("epsilon", o.epsilon),
                      {"lazy_mode", o.lazy_mode}}) {
  if (o.use_epsilon_hat) attrs().push_back({"use_epsilon_hat", true});
}

Adamax::Adamax(const AdamaxOptions& o)
    : OneOpOptimizer(Checked("adamax", o).learning_rate, "adamax",
                     {{"Moment", "MomentOut", "moment"},
                      {"InfNorm", "InfNormOut", "inf_norm"},
                      {"Beta1Pow", nullptr, "beta1_pow_acc", o.beta1, true}},
                     {FloatAttr("beta1", o.beta1), FloatAttr("beta2", o.beta2),
                      FloatAttr("epsilon", o.epsilon)}),
      beta1_(o.beta1) {}

void Adamax::FinishUpdate(BlockDesc& block, const std::vector<std::string>& state) {
  AppendScale(block, state[2], state[2], beta1_);
}

Rmsprop::Rmsprop(const RmspropOptions& o)
    : OneOpOptimizer(Checked("rmsprop", o).learning_rate, "rmsprop",
                     {{"Moment", "MomentOut", "momentum"},
                      {"MeanSquare", "MeanSquareOut", "mean_square"},
                      {"MeanGrad", "MeanGradOut", "mean_grad"}},
                     {FloatAttr("decay", o.rho),
                      FloatAttr("epsilon", o.epsilon),
                      FloatAttr("momentum", o.momentum),
                      {"centered", o.centered}}) {}

Ftrl::Ftrl(const FtrlOptions& o)
    : OneOpOptimizer(
          Checked("ftrl", o).learning_rate, "ftrl",
          {{"SquaredAccumulator", "SquaredAccumOut", "squared"},
           {"LinearAccumulator", "LinearAccumOut", "linear"}},
          {FloatAttr("l1", o.l1), FloatAttr("l2", o.l2), FloatAttr("lr_power", o.lr_power)}) {}

Lamb::Lamb(const LambOptions& o)
    : OneOpOptimizer(Checked("lamb", o).learning_rate, "lamb",
                     {{"Moment1", "Moment1Out", "moment1"},
                      {"Moment2", "Moment2Out", "moment2"},
                      {"Beta1Pow", "Beta1PowOut", "beta1_pow_acc", o.beta1, true},
                      {"Beta2Pow", "Beta2PowOut", "beta2_pow_acc", o.beta2, true}},
                     {FloatAttr("weight_decay", o.lamb_weight_decay), FloatAttr("beta1", o.beta1),
                      FloatAttr("beta2", o.beta2), FloatAttr("epsilon", o.epsilon)}),
      weight_decay_(o.lamb_weight_decay) {
  SetDecayFilter(o.decays);
}

void Lamb::AppendUpdate(const UpdateContext& update) {
  attrs().front() = FloatAttr("weight_decay", Decays(update.param) ? weight_decay_ : 0);
  OneOpOptimizer::AppendUpdate(update);
}

AdamW::AdamW(const AdamWOptions& o)
    : Adam({Checked("adamw", o).learning_rate, o.beta1, o.beta2, o.epsilon}),
      weight_decay_(o.weight_decay) {
  SetDecayFilter(o.decays);
}

void AdamW::AppendUpdate(const UpdateContext& update) {
  if (weight_decay_ > 0 && Decays(update.param)) AppendDecoupledDecay(update, weight_decay_);
  Adam::AppendUpdate(update);
}

OptimizerEntries AdaptiveOptimizers() {
  return {{"adam", KindOf<Adam>(FieldsOf(AdamOptions()))},
          {"adamw", KindOf<AdamW>(FieldsOf(AdamWOptions()))},
          {"adamax", KindOf<Adamax>(FieldsOf(AdamaxOptions()))},
          {"lamb", KindOf<Lamb>(FieldsOf(LambOptions()))},
          {"adagrad", KindOf<Adagrad>(FieldsOf(AdagradOptions()))},
          {"decayed_adagrad", KindOf<DecayedAdagrad>(FieldsOf(DecayedAdagradOptions()))},
          {"adadelta", KindOf<Adadelta>(FieldsOf(AdadeltaOptions()))},
          {"rmsprop", KindOf<Rmsprop>(FieldsOf(RmspropOptions()))},
          {"ftrl", KindOf<Ftrl>(FieldsOf(FtrlOptions()))}};
}

}  // namespace coracle
