#include <coracle/framework/ir/state.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/optimizer/internal/registry.h>
#include <coracle/optimizer/regularizer.h>
#include <coracle/optimizer/update_block.h>

namespace coracle {
namespace {

double CoeffOf(const Setting& setting) { return setting.Get<double>("coeff", 0); }

std::string NewVar(const UpdateContext& update, const std::string& hint) {
  std::string name = update.block.program().FreeName(hint);
  update.block.Var(name).SetMeta(Variable::Of(update.block, update.param).desc().meta());
  return name;
}

// update.grad + coeff * source. The gradient may be selected rows; the sum is dense.
std::string AppendDecay(const UpdateContext& update, const std::string& source, double coeff) {
  if (coeff == 0) return update.grad;
  const std::string decay = NewVar(update, update.param + "@DECAY");
  AppendScale(update.block, source, decay, coeff);
  std::string sum = NewVar(update, GradName(update.param) + "@DECAYED");
  InferOp(update.block,
          update.block.AppendOp("sum", {{"X", {update.grad, decay}}}, {{"Out", {sum}}}),
          DefaultOps());
  return sum;
}

std::string L2Decay(const UpdateContext& update, const Setting& setting) {
  return AppendDecay(update, update.param, CoeffOf(setting));
}

std::string L1Decay(const UpdateContext& update, const Setting& setting) {
  if (CoeffOf(setting) == 0) return update.grad;
  const std::string sign = NewVar(update, update.param + "@SIGN");
  update.block.AppendOp("sign", {{"X", {update.param}}}, {{"Out", {sign}}});
  return AppendDecay(update, sign, CoeffOf(setting));
}

std::string DecoupledDecay(const UpdateContext& update, const Setting& setting) {
  if (CoeffOf(setting) != 0) AppendDecoupledDecay(update, CoeffOf(setting));
  return update.grad;
}

struct DecayOptions {
  double coeff = 0;
};
FieldTable DecayFields(const char* doc) {
  return Fields<DecayOptions>(doc).Add("coeff", &DecayOptions::coeff, "see above").NotNegative();
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

void RegisterRegularizer(const std::string& kind, FieldTable fields, RegularizerFunction append) {
  All().Add(kind, {std::move(fields), std::move(append)});
}

void RegisterRegularizer(const std::string& kind, RegularizerFunction append) {
  RegisterRegularizer(kind, FieldTable::Any("Of this program."), std::move(append));
}

std::vector<std::string> RegularizerKinds() { return All().Kinds(); }

KindsWithFields RegularizerFields() {
  KindsWithFields all;
  for (const auto& [name, kind] : All().All()) all.emplace_back(name, kind.fields);
  return all;
}

std::string AppendRegularizer(const UpdateContext& update, const Setting& setting) {
  try {
    return All().Get(setting.kind).append(update, setting);
  } catch (const Error& e) {
    throw e.WithPrefix(fmt::format("parameter {}", Quote(update.param)));
  }
}

void AppendDecoupledDecay(const UpdateContext& update, double coeff) {
  BlockDesc& block = update.block;
  const DType dtype = Variable::Of(block, update.learning_rate).dtype();
  const std::string product = MakeTemporary(block, update.param + "_decay", dtype);
  AppendScale(block, update.learning_rate, product, -coeff);
  const std::string factor = MakeTemporary(block, update.param + "_decay", dtype);
  block.AppendOp("scale", {{"X", {product}}}, {{"Out", {factor}}},
                 {{"scale", 1.0f}, {"bias", 1.0f}});
  block.AppendOp("scale", {{"X", {update.param}}, {"ScaleTensor", {factor}}},
                 {{"Out", {update.param}}}, {{"scale", 1.0f}});
}

}  // namespace coracle
