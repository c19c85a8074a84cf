#include <coracle/framework/op/writer.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/internal/optimizer_kinds.h>

#include <algorithm>

namespace coracle {
namespace {

constexpr char kRate[] = "multiplies the gradient";
constexpr char kMomentum[] = "share of the velocity that a step keeps";
constexpr char kL1[] = "weight of the sum of |parameter|";
constexpr char kL2[] = "weight of the sum of parameter^2";
constexpr char kProximal[] = "A step of descent, then a proximal step for l1 and l2.";
constexpr StateSlot kVelocity = {"Velocity", "VelocityOut", "velocity"};

OptimizerEntries::value_type SgdKind() {
  return MakeKind("sgd", WithLearningRate<SgdOptions>("Stochastic gradient descent.", kRate), {});
}

OptimizerEntries::value_type MomentumKind() {
  using O = MomentumOptions;
  const auto fields =
      WithLearningRate<O>("Descent along a velocity, which sums gradients.", kRate)
          .Add("momentum", &O::momentum, kMomentum, RangeFrom(0, 1))
          .Add("use_nesterov", &O::use_nesterov, "step from where the velocity leads")
          .Add("velocity_holds_rate", &O::velocity_holds_rate,
               "the velocity sums rate * gradient, as Caffe's SGD and Nesterov do, so that a "
               "falling rate does not rescale past gradients");
  return MakeKind(
      "momentum", fields,
      {.state = {kVelocity}, .first = {{"momentum", "mu"}}, .only_true = "velocity_holds_rate"});
}

OptimizerEntries::value_type LarsMomentumKind() {
  using O = LarsMomentumOptions;
  const auto fields =
      WithLearningRate<O>(
          "Momentum with a rate for each parameter, by the ratio of its norm and its gradient's.",
          kRate)
          .Add("momentum", &O::momentum, kMomentum, RangeFrom(0, 1))
          .Add("lars_coeff", &O::lars_coeff, "multiplies that ratio", RangeFrom(0))
          .Add("lars_weight_decay", &O::lars_weight_decay, "share of the parameter that decays",
               RangeFrom(0))
          .Add("epsilon", &O::epsilon, "joins the divisor", RangeFrom(0));
  return MakeKind("lars_momentum", fields, {.state = {kVelocity}, .first = {{"momentum", "mu"}}});
}

OptimizerEntries::value_type LionKind() {
  using O = LionOptions;
  const auto fields =
      WithLearningRate<O>("Steps of one size: the sign of a mean of gradients.", "size of a step")
          .Add("beta1", &O::beta1, "share of the moment in the mean whose sign counts",
               RangeFrom(0, 1))
          .Add("beta2", &O::beta2, "share of the moment that a step keeps", RangeFrom(0, 1))
          .Add("weight_decay", &O::weight_decay, "share of the parameter that joins the sign",
               RangeFrom(0));
  return MakeKind("lion", fields, {.state = {{"Moment", "MomentOut", "moment"}}});
}

OptimizerEntries::value_type DpsgdKind() {
  using O = DpsgdOptions;
  const auto fields =
      WithLearningRate<O>("Differentially private descent: clipped gradients with noise.", kRate)
          .Add("clip", &O::clip, "largest norm of a gradient", RangeFrom(1e-30))
          .Add("batch_size", &O::batch_size, "divides the noise", RangeFrom(1e-30))
          .Add("sigma", &O::sigma, "standard deviation of the noise", RangeFrom(0));
  return MakeKind("dpsgd", fields, {});
}

template <class O>
OptimizerEntries::value_type ProximalKind(const char* kind, std::vector<StateSlot> state) {
  const auto fields = WithLearningRate<O>(kProximal, kRate)
                          .Add("l1", &O::l1, kL1, RangeFrom(0))
                          .Add("l2", &O::l2, kL2, RangeFrom(0));
  return MakeKind(kind, fields, {.state = std::move(state)});
}

OptimizerEntries MakeBuiltIn() {
  OptimizerEntries all = {SgdKind(),
                          MomentumKind(),
                          LarsMomentumKind(),
                          LionKind(),
                          DpsgdKind(),
                          ProximalKind<ProximalGdOptions>("proximal_gd", {}),
                          ProximalKind<ProximalAdagradOptions>(
                              "proximal_adagrad", {{"Moment", "MomentOut", "moment"}})};
  for (auto& entry : AdaptiveOptimizers()) all.push_back(std::move(entry));
  return all;
}

const OptimizerEntries::value_type& KindOf(const std::type_info& options) {
  for (const auto& entry : BuiltInOptimizers())
    if (*entry.second.options == options) return entry;
  ThrowInvalid(
      "OptimizerOf is for the options of Coracle's optimizers: for options of your own, name as "
      "Makes a class of your own that is derived from Optimizer");
}

double NumberOf(const OptimizerKind& kind, const char* field, const void* options) {
  return AttributeAs<double>(*FieldTable::ValueOf(*kind.fields.Find(field), options));
}

// Returns the learning rate after checking the options.
double RateOf(const std::type_info& type, const void* options) {
  CheckOptions(type, options);
  return NumberOf(KindOf(type).second, "learning_rate", options);
}

// The value as an attr holds it: numbers become floats.
NamedAttr AttrOf(std::string name, const FieldSpec& field, const void* options) {
  Attribute value = *FieldTable::ValueOf(field, options);
  if (const auto* number = std::get_if<double>(&value)) value = static_cast<float>(*number);
  return {std::move(name), std::move(value)};
}

AttrList AttrsOf(const OptimizerKind& kind, const void* options) {
  const OpSpec& op = DefaultOps().Get(kind.op.type);
  const auto& first = kind.op.first;
  AttrList attrs;
  for (const auto& [field, attr] : first)
    attrs.push_back(AttrOf(attr, *kind.fields.Find(field), options));
  for (const FieldSpec& field : kind.fields.fields()) {
    const auto same = [&](const auto& done) { return done.first == field.name; };
    if (!op.FindAttr(field.name) || std::any_of(first.begin(), first.end(), same)) continue;
    NamedAttr attr = AttrOf(field.name, field, options);
    if (field.name != kind.op.only_true || std::get<bool>(attr.value))
      attrs.push_back(std::move(attr));
  }
  return attrs;
}

// Whether the attr is an update op's own weight decay.
bool IsDecay(const std::string& attr) {
  return attr == "weight_decay" || attr == "lars_weight_decay";
}

// The gradient; selected rows become dense if the op does not accept them.
std::string GradientFor(const std::string& type, const UpdateContext& update) {
  const Writer w(update.block, DefaultOps(), {.stop_gradient = true});
  const SlotDef* slot = DefaultOps().Get(type).FindInput("Grad");
  if (!slot || slot->Takes(w.Var(update.grad).desc().type())) return update.grad;
  return w
      .Named(update.grad + "@DENSE",
             w.Make("get_tensor_from_selected_rows", {{"X", {update.grad}}}))
      .name();
}

}  // namespace

void internal::CheckOptions(const std::type_info& type, const void* options) {
  const auto& [name, kind] = KindOf(type);
  kind.fields.CheckRanges(name, options);
}

const OptimizerEntries& internal::BuiltInOptimizers() {
  static const OptimizerEntries all = MakeBuiltIn();
  return all;
}

OneOpOptimizer::OneOpOptimizer(double learning_rate, std::string type, std::vector<State> state,
                               AttrList attrs, bool needs_rate)
    : Optimizer(learning_rate),
      type_(std::move(type)),
      state_(std::move(state)),
      attrs_(std::move(attrs)),
      needs_rate_(needs_rate) {}

OneOpOptimizer::OneOpOptimizer(const std::type_info& type, const void* options)
    : Optimizer(RateOf(type, options)) {
  const OptimizerKind& kind = KindOf(type).second;
  type_ = kind.op.type;
  for (const StateSlot& s : kind.op.state)
    state_.push_back(
        {s.in, s.out, s.suffix, s.value ? NumberOf(kind, s.value, options) : 0, s.scalar});
  attrs_ = AttrsOf(kind, options);
  needs_rate_ = kind.op.needs_rate;
}

void OneOpOptimizer::AppendUpdate(const UpdateContext& update) {
  const Shape one = {1};
  SlotList inputs = {{"Param", {update.param}}, {"Grad", {GradientFor(type_, update)}}};
  if (needs_rate_ || !update.unit_rate) inputs.push_back({"LearningRate", {update.learning_rate}});
  SlotList outputs = {{"ParamOut", {update.param}}};
  std::vector<std::pair<std::string, double>> powers;
  for (const State& state : state_) {
    const std::string name =
        Accumulator(update, state.suffix, state.value, state.scalar ? &one : nullptr);
    inputs.push_back({state.in, {name}});
    if (state.out)
      outputs.push_back({state.out, {name}});
    else
      powers.emplace_back(name, state.value);
  }
  AttrList attrs = attrs_;
  for (NamedAttr& attr : attrs)
    if (IsDecay(attr.name) && !Decays(update.param)) attr.value = 0.0f;
  Writer(update.block, DefaultOps()).Append(type_, std::move(inputs), std::move(outputs), attrs);
  for (const auto& [name, base] : powers) AppendScale(update.block, name, name, base);
}

}  // namespace coracle
