// Sums, elementwise products, concatenations and average pools of integers, if their results are
// quantized:
//
//   a = affine_dequantize(p), b = affine_dequantize(q), y = elementwise_add(a, b), z = relu(y),
//   r = affine_quantize(z)
//
// is replaced by
//
//   r = quantized_add(p, q)

#include <coracle/passes/fuse_quantized.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

constexpr const char* kNotQuantized = "its result is not quantized";

// The epilogue of an op that writes float32 to Out. Its form is missing if no quantization of one
// frozen scale follows.
QuantizedEpilogue EpilogueOf(const QuantizedScene& scene, const OpDesc& op, bool activation) {
  QuantizedEpilogue epilogue;
  epilogue.ops = {&op};
  epilogue.result = op.Output("Out")[0];
  ExtendEpilogue(scene, {.activation = activation}, epilogue);
  return epilogue;
}

bool IsPlain(const QuantizedScene& scene, const OpDesc& op) {
  return op.Output("Out").size() == 1 && !scene.flow().IsRecomputed(op) &&
         scene.flow().IsOnlyOutput(op, op.Output("Out")[0]);
}

// A variable with the zero point, also if that is 0.
std::string ZeroPointOf(QuantizedScene& scene, const QuantizedForm& form) {
  if (!form.zero_point.empty()) return form.zero_point;
  return scene.AddConstant(form.scale, Tensor::Zeros(form.dtype, {1}));
}

bool IsAverage(const QuantizedScene& scene, const OpDesc& op) {
  return scene.SpecOf(op).AttrOf<std::string>(op, "pooling_type") == "avg";
}

// Whether a concat may join the LoD of its operands, along the axis of the rows.
bool JoinsLod(const QuantizedScene& scene, const OpDesc& op) {
  const VarMeta* out = scene.Meta(op.Output("Out")[0]);
  const auto axis = scene.SpecOf(op).AttrOf<int32_t>(op, "axis");
  if (out && axis != 0 && axis != -out->shape.rank()) return false;
  const LodFlow lod(scene.block(), scene.context());
  const std::vector<std::string>& x = op.Input("X");
  return std::any_of(x.begin(), x.end(),
                     [&](const std::string& name) { return lod.MayHaveLod(name); });
}

}  // namespace

std::string QuantizeSum(QuantizedScene& scene, const OpDesc& op) {
  if (!IsPlain(scene, op) || op.Input("X").size() != 1 || op.Input("Y").size() != 1)
    return "it has other outputs";
  const QuantizedValue* x = scene.IntegersOfOneScale(op.Input("X")[0]);
  const QuantizedValue* y = scene.IntegersOfOneScale(op.Input("Y")[0]);
  if (!x || !y) return "an operand is not quantized with one scale";
  const QuantizedEpilogue epilogue = EpilogueOf(scene, op, true);
  if (!epilogue.form) return kNotQuantized;
  const char* type = op.type() == "elementwise_add" ? "quantized_add" : "quantized_mul";
  OpDesc made(type, {{"X", {x->integers}}, {"Y", {y->integers}}}, {{"Out", {epilogue.result}}});
  SetForm(made, "X", x->form);
  SetForm(made, "Y", y->form);
  if (const Attribute* axis = op.FindAttr("axis")) made.SetAttr("axis", *axis);
  SetEpilogue(scene, epilogue, made);
  return scene.Replace(epilogue.ops, {made});
}

std::string QuantizeConcat(QuantizedScene& scene, const OpDesc& op) {
  if (!IsPlain(scene, op) || HasOtherInput(op, "X")) return "its axis is known only at run time";
  if (JoinsLod(scene, op)) return "an operand may have LoD";
  std::vector<std::string> from, scales, zeros;
  bool any_zero = false;
  for (const std::string& name : op.Input("X")) {
    const QuantizedValue* x = scene.IntegersOfOneScale(name);
    if (!x) return "an operand is not quantized with one scale";
    from.push_back(x->integers);
    scales.push_back(x->form.scale);
    any_zero = any_zero || !x->form.zero_point.empty();
  }
  QuantizedEpilogue epilogue = EpilogueOf(scene, op, false);
  if (!epilogue.form) return kNotQuantized;
  if (epilogue.HasActivation()) return "its quantization has a narrow range";
  OpDesc made("quantized_concat", {{"X", from}, {"XScale", scales}}, {{"Out", {epilogue.result}}});
  for (const std::string& name : op.Input("X")) {
    const QuantizedValue& x = *scene.IntegersOfOneScale(name);
    if (any_zero) zeros.push_back(ZeroPointOf(scene, x.form));
  }
  if (any_zero) made.SetInput("XZeroPoint", zeros);
  if (const Attribute* axis = op.FindAttr("axis")) made.SetAttr("axis", *axis);
  SetEpilogue(scene, epilogue, made);
  return scene.Replace(epilogue.ops, {made});
}

std::string QuantizePool(QuantizedScene& scene, const OpDesc& op) {
  if (!IsAverage(scene, op)) return "its source is not quantized, or several ops read its result";
  if (!IsPlain(scene, op) || op.Input("X").size() != 1) return "it has other outputs";
  const QuantizedValue* x = scene.IntegersOfOneScale(op.Input("X")[0]);
  if (!x) return "its input is not quantized with one scale";
  QuantizedEpilogue epilogue = EpilogueOf(scene, op, false);
  if (!epilogue.form) return kNotQuantized;
  if (epilogue.HasActivation()) return "its quantization has a narrow range";
  OpDesc made("quantized_pool2d", {{"X", {x->integers}}}, {{"Out", {epilogue.result}}});
  SetForm(made, "X", x->form);
  const OpSpec* spec = scene.context().ops.Find(made.type());
  for (const NamedAttr& attr : op.attrs())
    if (spec && spec->FindAttr(attr.name)) made.SetAttr(attr.name, attr.value);
  SetEpilogue(scene, epilogue, made);
  return scene.Replace(epilogue.ops, {made});
}

}  // namespace coracle::inline internal
