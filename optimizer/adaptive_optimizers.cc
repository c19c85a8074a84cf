// Optimizers that divide by statistics of past gradients.

#include <coracle/optimizer/internal/optimizer_kinds.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/regularizer/regularizer.h>

namespace coracle {
namespace {

constexpr char kRate[] = "multiplies the update";
constexpr char kEpsilon[] = "joins the divisor";
constexpr char kBeta1[] = "share of the mean of gradients that a step keeps";
constexpr char kBeta2[] = "share of the mean of squares that a step keeps";

// The state of adam and lamb.
std::vector<StateSlot> Moments() {
  return {{"Moment1", "Moment1Out", "moment1"},
          {"Moment2", "Moment2Out", "moment2"},
          {"Beta1Pow", "Beta1PowOut", "beta1_pow_acc", "beta1", true},
          {"Beta2Pow", "Beta2PowOut", "beta2_pow_acc", "beta2", true}};
}

template <class O>
void AddBetas(Fields<O>* fields, const char* beta2_doc = kBeta2) {
  fields->Add("beta1", &O::beta1, kBeta1, RangeFrom(0, 1))
      .Add("beta2", &O::beta2, beta2_doc, RangeFrom(0, 1))
      .Add("epsilon", &O::epsilon, kEpsilon, RangeFrom(0));
}

OptimizerEntries::value_type AdamKind() {
  using O = AdamOptions;
  auto fields =
      WithLearningRate<O>("Mean of gradients over the root of the mean of their squares.", kRate);
  AddBetas(&fields);
  fields
      .Add("lazy_mode", &O::lazy_mode,
           "a sparse gradient updates its own rows and their moments only")
      .Add(
          "use_epsilon_hat", &O::use_epsilon_hat,
          "epsilon joins the root as it is (Caffe, Paddle before 2.0), not corrected for the bias");
  return MakeKind("adam", fields, {.state = Moments(), .only_true = "use_epsilon_hat"});
}

OptimizerEntries::value_type AdamWKind() {
  using O = AdamWOptions;
  auto fields =
      WithLearningRate<O>("Adam with decoupled weight decay: parameter *= 1 - rate * weight_decay.",
                          kRate)
          .Add("weight_decay", &O::weight_decay, "see above; of parameters that decay",
               RangeFrom(0));
  AddBetas(&fields);
  return MakeKind("adamw", fields, {.type = "adam"});
}

OptimizerEntries::value_type AdamaxKind() {
  using O = AdamaxOptions;
  auto fields =
      WithLearningRate<O>("Adam with the largest gradient in place of the mean of squares.", kRate);
  AddBetas(&fields, "share of the largest gradient that a step keeps");
  return MakeKind("adamax", fields,
                  {.state = {{"Moment", "MomentOut", "moment"},
                             {"InfNorm", "InfNormOut", "inf_norm"},
                             {"Beta1Pow", nullptr, "beta1_pow_acc", "beta1", true}}});
}

OptimizerEntries::value_type LambKind() {
  using O = LambOptions;
  auto fields = WithLearningRate<O>("Adam's update, scaled to the norm of the parameter.", kRate)
                    .Add("lamb_weight_decay", &O::lamb_weight_decay,
                         "share of a parameter that decays which joins its update", RangeFrom(0));
  AddBetas(&fields);
  return MakeKind("lamb", fields,
                  {.state = Moments(), .first = {{"lamb_weight_decay", "weight_decay"}}});
}

OptimizerEntries::value_type AdagradKind() {
  using O = AdagradOptions;
  const auto fields =
      WithLearningRate<O>("Divides by the root of the sum of squared gradients.", kRate)
          .Add("epsilon", &O::epsilon, kEpsilon, RangeFrom(0))
          .Add("initial_accumulator_value", &O::initial_accumulator_value,
               "initial value of the sum", RangeFrom(0));
  return MakeKind("adagrad", fields,
                  {.state = {{"Moment", "MomentOut", "moment", "initial_accumulator_value"}}});
}

OptimizerEntries::value_type DecayedAdagradKind() {
  using O = DecayedAdagradOptions;
  const auto fields =
      WithLearningRate<O>("Divides by the root of a mean of squared gradients: Caffe's RMSProp.",
                          kRate)
          .Add("decay", &O::decay, "share of the mean that a step keeps: Caffe's rms_decay",
               RangeFrom(0, 1))
          .Add("epsilon", &O::epsilon, "joins the divisor: Caffe's delta", RangeFrom(0));
  return MakeKind("decayed_adagrad", fields, {.state = {{"Moment", "MomentOut", "moment"}}});
}

OptimizerEntries::value_type AdadeltaKind() {
  using O = AdadeltaOptions;
  const auto fields =
      WithLearningRate<O>("Scales gradients to the size of past updates.", kRate)
          .Add("epsilon", &O::epsilon, "joins both roots", RangeFrom(0))
          .Add("rho", &O::rho, "share of the means that a step keeps", RangeFrom(0, 1));
  return MakeKind("adadelta", fields,
                  {.state = {{"AvgSquaredGrad", "AvgSquaredGradOut", "_avg_squared_grad"},
                             {"AvgSquaredUpdate", "AvgSquaredUpdateOut", "_avg_squared_update"}},
                   .first = {{"rho", "rho"}},
                   .needs_rate = false});
}

OptimizerEntries::value_type RmspropKind() {
  using O = RmspropOptions;
  const auto fields =
      WithLearningRate<O>("Divides by the root of the mean of squares, with a velocity.", kRate)
          .Add("rho", &O::rho, kBeta2, RangeFrom(0, 1))
          .Add("epsilon", &O::epsilon, kEpsilon, RangeFrom(0))
          .Add("momentum", &O::momentum, "share of the velocity that a step keeps", RangeFrom(0, 1))
          .Add("centered", &O::centered, "subtract the square of the mean of gradients");
  return MakeKind("rmsprop", fields,
                  {.state = {{"Moment", "MomentOut", "momentum"},
                             {"MeanSquare", "MeanSquareOut", "mean_square"},
                             {"MeanGrad", "MeanGradOut", "mean_grad"}},
                   .first = {{"rho", "decay"}}});
}

OptimizerEntries::value_type FtrlKind() {
  using O = FtrlOptions;
  const auto fields =
      WithLearningRate<O>("Follow the regularized leader (McMahan et al. 2013).", kRate)
          .Add("l1", &O::l1, "weight of the sum of |parameter|", RangeFrom(0))
          .Add("l2", &O::l2, "weight of the sum of parameter^2", RangeFrom(0))
          .Add("lr_power", &O::lr_power, "power of the sum of squares that divides",
               FieldRange{-HUGE_VAL, 0, true, false, "must be finite and at most 0"});
  return MakeKind("ftrl", fields,
                  {.state = {{"SquaredAccumulator", "SquaredAccumOut", "squared"},
                             {"LinearAccumulator", "LinearAccumOut", "linear"}}});
}

AdamOptions AdamPart(const AdamWOptions& o) {
  CheckOptions(typeid(o), &o);
  return {
      .learning_rate = o.learning_rate, .beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon};
}

}  // namespace

Lamb::Lamb(const LambOptions& options)
    : OptimizerOf(options), weight_decay_(options.lamb_weight_decay) {
  SetDecayFilter(options.decays);
}

void Lamb::AppendUpdate(const UpdateContext& update) {
  const auto decay = static_cast<float>(Decays(update.param) ? weight_decay_ : 0);
  attrs().front() = {"weight_decay", decay};
  OneOpOptimizer::AppendUpdate(update);
}

AdamW::AdamW(const AdamWOptions& options)
    : Adam(AdamPart(options)), weight_decay_(options.weight_decay) {
  SetDecayFilter(options.decays);
}

void AdamW::AppendUpdate(const UpdateContext& update) {
  if (weight_decay_ > 0 && Decays(update.param)) AppendDecoupledDecay(update, weight_decay_);
  Adam::AppendUpdate(update);
}

OptimizerEntries internal::AdaptiveOptimizers() {
  return {AdamKind(),           AdamWKind(),    AdamaxKind(),  LambKind(), AdagradKind(),
          DecayedAdagradKind(), AdadeltaKind(), RmspropKind(), FtrlKind()};
}

}  // namespace coracle
