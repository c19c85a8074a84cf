// The ops after a product or a sum that an integer op does itself: bias, residual, activation and
// the quantization of the result.

#include <coracle/operators/conv/conv_activation.h>
#include <coracle/passes/fuse_quantized.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

// The operand of a sum other than `var`; "" if the op is no sum of two, or of twice the same.
std::string OtherOperand(const OpDesc& op, const std::string& var) {
  if (op.type() != "elementwise_add" || op.Input("X").size() != 1 || op.Input("Y").size() != 1)
    return "";
  const std::string &x = op.Input("X")[0], &y = op.Input("Y")[0];
  if (x == y) return "";
  return x == var ? y : x;
}

// Whether op adds to `var`, its X, one frozen number for each of the columns along the last axis.
bool AddsBias(const QuantizedScene& scene, const OpDesc& op, const std::string& var,
              int64_t columns) {
  const std::string other = OtherOperand(op, var);
  if (other.empty() || op.Input("X")[0] != var) return false;
  const Tensor* bias = scene.context().FrozenValue(other);
  const VarMeta* product = scene.Meta(var);
  if (!bias || !product || bias->dtype() != DType::kFloat32 || bias->numel() != columns ||
      bias->shape().rank() == 0)
    return false;
  const Shape& shape = bias->shape();
  const int rank = product->shape.rank();
  const auto axis = scene.SpecOf(op).AttrOf<int32_t>(op, "axis");
  const bool at_the_end =
      axis == -1 || (axis == rank - shape.rank() && rank == scene.flow().CertainRank(var));
  return at_the_end && shape.rank() <= rank && shape[shape.rank() - 1] == columns;
}

// Whether op adds a tensor of the same shape.
bool AddsResidual(const QuantizedScene& scene, const OpDesc& op, const std::string& var) {
  const std::string other = OtherOperand(op, var);
  if (other.empty()) return false;
  const VarMeta* residual = scene.Meta(other);
  const auto axis = scene.SpecOf(op).AttrOf<int32_t>(op, "axis");
  return scene.HaveSameShape(var, other) && residual->type == VarType::kLoDTensor &&
         residual->dtype == DType::kFloat32 && (axis == -1 || axis == 0);
}

const NamedAttr* FindIn(const AttrList& attrs, const char* name) {
  for (const NamedAttr& attr : attrs)
    if (attr.name == name) return &attr;
  return nullptr;
}
float NumberIn(const AttrList& attrs, const char* name) {
  const NamedAttr* attr = FindIn(attrs, name);
  return attr ? AttributeAs<float>(attr->value) : 0.0f;
}

// The bounds of the activation, if it only limits its argument.
struct Bounds {
  double least, most;
};
std::optional<Bounds> BoundsOf(const AttrList& activation) {
  const NamedAttr* name = FindIn(activation, "fuse_activation");
  const auto is = [&](const char* type) {
    return name && AttributeAs<std::string>(name->value) == type;
  };
  const double infinite = HUGE_VAL;
  if (is("relu")) return Bounds{0, infinite};
  const double alpha = static_cast<double>(NumberIn(activation, "fuse_alpha"));
  if (is("relu6")) return Bounds{0, alpha};
  if (is("clip")) return Bounds{alpha, static_cast<double>(NumberIn(activation, "fuse_beta"))};
  return std::nullopt;
}

// Whether numbers beyond the bounds become the least or the most integer in any case.
bool LimitsNothing(const Bounds& bounds, const QuantizedForm& form) {
  const auto integer = [&](double bound) {
    return std::nearbyint(static_cast<float>(bound) / form.Scale()) +
           static_cast<float>(form.ZeroPoint());
  };
  return bounds.least <= bounds.most && integer(bounds.least) <= static_cast<float>(form.least) &&
         integer(bounds.most) >= static_cast<float>(form.most);
}

// Whether the epilogue can give integers of that form. Drops an activation that the limits of the
// integers imply; a range that is narrower than the dtype's becomes an activation.
bool AdaptTo(const QuantizedForm& form, QuantizedEpilogue& epilogue) {
  if (!form.HasOneScale() || !form.HasPositiveScales()) return false;
  const auto bounds = BoundsOf(epilogue.activation);
  QuantizedForm whole = form;
  whole.least = LeastOf(form.dtype);
  whole.most = MostOf(form.dtype);
  if (bounds && LimitsNothing(*bounds, whole)) epilogue.activation.clear();
  if (form.HasWholeRange()) return true;
  // A nan of the residual would become the least integer of the dtype.
  if (!epilogue.residual.empty()) return false;
  if (!epilogue.HasActivation()) {
    const auto number = [&](int64_t q) {
      return form.Scale() * static_cast<float>(q - form.ZeroPoint());
    };
    epilogue.activation = {{"fuse_activation", std::string("clip")},
                           {"fuse_alpha", number(form.least)},
                           {"fuse_beta", number(form.most)}};
    return true;
  }
  // The activation may keep the numbers in the range.
  const auto integer = [&](double bound) {
    return std::nearbyint(static_cast<float>(bound) / form.Scale()) +
           static_cast<float>(form.ZeroPoint());
  };
  return bounds && bounds->least <= bounds->most &&
         (form.least == whole.least || integer(bounds->least) >= static_cast<float>(form.least)) &&
         (form.most == whole.most || integer(bounds->most) <= static_cast<float>(form.most));
}

// Integer ops round ties to even. With a scale that is less by 2^-22, ties lie beyond the middle,
// as do numbers that float32 can hardly tell from ties.
QuantizedForm RoundingAway(QuantizedScene& scene, QuantizedForm form) {
  if (!form.rounds_away) return form;
  constexpr float kNudge = 1 - 0x1p-22f;
  form.scales[0] *= kNudge;
  form.scale = scene.AddConstant(form.scale, Tensor::Of<float>({1}, {form.scales[0]}));
  return form;
}

}  // namespace

void ExtendEpilogue(const QuantizedScene& scene, const EpilogueKinds& kinds,
                    QuantizedEpilogue& so_far) {
  while (const OpDesc* next = scene.OnlyReader(so_far.result)) {
    const std::string var = so_far.result;
    const bool linear = !so_far.HasActivation();
    if (next->type() == "affine_quantize") {
      const auto form = FormWritten(scene.block(), scene.context(), *next);
      const std::string& out = next->Output("Out")[0];
      if (!form || !scene.flow().IsConstantInARun(out) || !AdaptTo(*form, so_far)) return;
      so_far.ops.push_back(next);
      so_far.form = form;
      so_far.result = out;
      return;
    }
    if (next->Output("Out").size() != 1 || !scene.flow().IsConstantInARun(next->Output("Out")[0]))
      return;
    if (linear && so_far.bias.empty() && so_far.residual.empty() && kinds.bias_columns >= 0 &&
        AddsBias(scene, *next, var, kinds.bias_columns)) {
      so_far.bias = OtherOperand(*next, var);
    } else if (linear && so_far.residual.empty() && kinds.residual &&
               AddsResidual(scene, *next, var)) {
      so_far.residual = OtherOperand(*next, var);
    } else if (const auto attrs = linear && kinds.activation && !HasOtherInput(*next, "X")
                                      ? FusedAttrsOf(*next)
                                      : std::nullopt) {
      so_far.activation = *attrs;
    } else {
      return;
    }
    so_far.ops.push_back(next);
    so_far.result = next->Output("Out")[0];
  }
}

void SetEpilogue(QuantizedScene& scene, const QuantizedEpilogue& epilogue, OpDesc& op) {
  for (const NamedAttr& attr : epilogue.activation) op.SetAttr(attr.name, attr.value);
  const DType dtype = epilogue.form ? epilogue.form->dtype : DType::kFloat32;
  op.SetAttr("out_dtype", static_cast<int32_t>(dtype));
  if (epilogue.form) SetForm(op, "Out", RoundingAway(scene, *epilogue.form));
}

void SetResidual(const QuantizedScene& scene, const QuantizedEpilogue& epilogue, OpDesc& op) {
  if (epilogue.residual.empty()) return;
  const QuantizedValue* integers = scene.IntegersOfOneScale(epilogue.residual);
  op.SetInput("Residual", {integers ? integers->integers : epilogue.residual});
  if (integers) SetForm(op, "Residual", integers->form);
}

}  // namespace coracle::inline internal
