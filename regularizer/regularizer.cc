#include <coracle/framework/base/registry.h>
#include <coracle/framework/base/required.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/operators/operators.h>
#include <coracle/regularizer/regularizer.h>

namespace coracle {
namespace {

// CheckRegularizer has required the attr.
double CoeffOf(const Setting& setting) { return setting.Get<double>("coeff", 0); }

Writer DecayWriter(const UpdateContext& update) {
  ProgramDesc& main = update.block.program();
  return Writer(update.block, DefaultOps(),
                {.mark = {.stage = TrainingStage::kDecay},
                 .name = [&main](const std::string& name) { return main.FreeName(name); }});
}

// The parameter, converted to the gradient's dtype (float32) if it has only 16 bits.
Variable ParamFor(const UpdateContext& update, const Writer& w) {
  const Variable param = w.Var(update.param);
  const DType dtype = w.Var(update.grad).dtype();
  if (dtype == param.dtype()) return param;
  return w.Named(update.param + "@DECAY", Cast(param, dtype));
}

// The gradient + coeff * source. The gradient may be selected rows; the sum is dense.
std::string AppendDecay(const UpdateContext& update, const Writer& w, const Variable& source,
                        double coeff) {
  const Variable grad = w.Var(update.grad);
  const Variable decay = w.Named(update.param + "@DECAY", source * coeff);
  return w.Named(GradName(update.param) + "@DECAYED", AddAll(std::vector{grad, decay})).name();
}

std::string L2Decay(const UpdateContext& update, const Setting& setting) {
  if (CoeffOf(setting) == 0) return update.grad;
  const Writer w = DecayWriter(update);
  return AppendDecay(update, w, ParamFor(update, w), CoeffOf(setting));
}

std::string L1Decay(const UpdateContext& update, const Setting& setting) {
  if (CoeffOf(setting) == 0) return update.grad;
  const Writer w = DecayWriter(update);
  const Variable sign = w.Named(update.param + "@SIGN", Sign(ParamFor(update, w)));
  return AppendDecay(update, w, sign, CoeffOf(setting));
}

std::string DecoupledDecay(const UpdateContext& update, const Setting& setting) {
  if (CoeffOf(setting) != 0) AppendDecoupledDecay(update, CoeffOf(setting));
  return update.grad;
}

struct DecayOptions {
  double coeff = 0;
};
FieldTable DecayFields(const char* doc) {
  return Fields<DecayOptions>(doc).Add("coeff", &DecayOptions::coeff, "see above", kRequired,
                                       NotNegativeRange());
}

struct Kind {
  FieldTable fields;
  RegularizerFunction append;
};
Registry<Kind>& All() {
  static Registry<Kind> all(
      "regularizer",
      {{"l2_decay", {DecayFields("gradient + coeff * parameter"), L2Decay}},
       {"l1_decay", {DecayFields("gradient + coeff * sign(parameter), sign(0) = 0"), L1Decay}},
       {"decoupled_decay",
        {DecayFields("parameter *= 1 - rate * coeff; the gradient stays"), DecoupledDecay}}});
  return all;
}

}  // namespace

Setting L2DecayRegularizer(double coeff) { return {"l2_decay", {{"coeff", coeff}}}; }
Setting L1DecayRegularizer(double coeff) { return {"l1_decay", {{"coeff", coeff}}}; }

void RegisterRegularizer(const std::string& kind, FieldTable fields, RegularizerFunction append) {
  RequireFunction(append, fmt::format("regularizer {}: its function", Quote(kind)));
  All().Add(kind, {std::move(fields), std::move(append)});
}

void RegisterRegularizer(const std::string& kind, RegularizerFunction append) {
  RegisterRegularizer(kind, FieldTable::Any("Of this program."), std::move(append));
}

KindsWithFields RegularizerFields() {
  KindsWithFields all;
  for (const auto& [name, kind] : All().All()) all.emplace_back(name, kind.fields);
  return all;
}

void CheckRegularizer(const Setting& setting) {
  All().Get(setting.kind).fields.CheckSetting(setting.kind, setting);
}

std::string AppendRegularizer(const UpdateContext& update, Setting setting, double multiplier) {
  const EditGuard guard(update.block.program(), update.startup);
  try {
    CheckRegularizer(setting);
    for (NamedAttr& attr : setting.attrs) {
      if (attr.name != "coeff" || multiplier == 1) continue;
      attr.value = AttributeAs<double>(attr.value) * multiplier;
    }
    return All().Get(setting.kind).append(update, setting);
  } catch (const Error& e) {
    throw e.WithPrefix(fmt::format("parameter {}", Quote(update.param)));
  }
}

void AppendDecoupledDecay(const UpdateContext& update, double coeff) {
  const EditGuard guard(update.block.program(), update.startup);
  const Writer w(update.block, DefaultOps(),
                 {.mark = {.stage = TrainingStage::kDecay}, .stop_gradient = true});
  const std::string name = update.param + "_decay";
  const Variable product = w.Named(name, w.Var(update.learning_rate) * -coeff);
  const Variable factor = w.Named(name, product + 1.0);
  w.Into(update.param, "scale", {{"X", {update.param}}, {"ScaleTensor", {factor.name()}}},
         {{"scale", 1.0f}});
}

}  // namespace coracle
