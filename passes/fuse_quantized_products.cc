// Convolutions and matrix products of integers:
//
//   x = affine_dequantize(q), w = affine_dequantize(f), y = conv2d(x, w), z = relu(y),
//   p = affine_quantize(z)
//
// is replaced by
//
//   p = quantized_conv2d(q, f)

#include <coracle/passes/fuse_quantized.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace coracle::inline internal {
namespace {

using Ints = std::vector<int32_t>;
constexpr const char* kHuge = "its products may exceed the range of float32";

// --- weights ---

// A weight of integers with one scale, or one for each position of the axis of the results.
std::string CheckWeight(const QuantizedScene& scene, const QuantizedValue& weight, int axis) {
  if (weight.form.axis >= 0 && weight.form.axis != axis)
    return "its weights have scales along another axis";
  const std::vector<float>& scales = weight.form.scales;
  if (!std::all_of(scales.begin(), scales.end(), IsUsualScale))
    return "a scale of its weights is not finite, or huge";
  return scene.context().FrozenValue(weight.integers) ? "" : "its weights are not frozen";
}

// Whether sums of products of such numbers stay finite in float32. Integers would give the numbers
// where float32 gives an infinity or a nan.
bool HasModerateProducts(const QuantizedForm& x, const QuantizedForm& y) {
  constexpr float kMost = 1e27f;  // times 255 * 255 for each of five million terms
  if (x.scales.empty() || y.scales.empty()) return true;
  return std::all_of(y.scales.begin(), y.scales.end(),
                     [&](float s) { return std::abs(s * x.Scale()) <= kMost; });
}

// --- convolutions ---

// Whether few channels share an input channel. The fast kernel of integers for such a convolution
// needs frozen scales.
bool HasSmallGroups(const QuantizedScene& scene, const OpDesc& op) {
  const VarMeta* filter = scene.Meta(op.Input("Filter")[0]);
  constexpr int64_t kSmall = 16;
  return scene.SpecOf(op).AttrOf<int32_t>(op, "groups") > 1 &&
         (!filter || filter->shape.rank() < 2 || filter->shape[1] < kSmall);
}

std::string CheckConvolution(const QuantizedScene& scene, const OpDesc& op) {
  if (op.Input("Input").size() != 1 || op.Input("Filter").size() != 1 ||
      op.Output("Output").size() != 1)
    return "it has no input or filter";
  if (scene.flow().IsRecomputed(op)) return "it is computed again for a gradient";
  const QuantizedValue* input = scene.IntegersOfAnyScale(op.Input("Input")[0]);
  if (!input) return "its input is not quantized";
  const QuantizedValue* filter = scene.Integers(op.Input("Filter")[0]);
  if (!filter) return "its filter is not quantized";
  if (input->form.scales.empty() && HasSmallGroups(scene, op))
    return "in small groups, only frozen scales pay";
  if (!HasModerateProducts(input->form, filter->form)) return kHuge;
  return CheckWeight(scene, *filter, 0);
}

// The convolution's own bias, residual and activation.
QuantizedEpilogue EpilogueOf(const OpDesc& op) {
  QuantizedEpilogue epilogue;
  epilogue.ops = {&op};
  if (op.HasInput("Bias")) epilogue.bias = op.Input("Bias")[0];
  if (op.HasInput("ResidualData")) epilogue.residual = op.Input("ResidualData")[0];
  if (!op.GetAttr<std::string>("fuse_activation", "").empty()) {
    for (const char* name : {"fuse_activation", "fuse_alpha", "fuse_beta"})
      if (const Attribute* value = op.FindAttr(name)) epilogue.activation.push_back({name, *value});
  }
  epilogue.result = op.Output("Output")[0];
  return epilogue;
}

bool IsFloat(const VarMeta* meta) {
  return meta && meta->type == VarType::kLoDTensor && meta->dtype == DType::kFloat32;
}

// Whether the residual needs no broadcast.
bool FitsResidual(const QuantizedScene& scene, const QuantizedEpilogue& epilogue) {
  if (epilogue.residual.empty()) return true;
  return IsFloat(scene.Meta(epilogue.residual)) &&
         scene.HaveSameShape(epilogue.residual, epilogue.result);
}

// --- products of matrices ---

const QuantizedValue* OperandY(const QuantizedScene& scene, const MatrixProduct& p) {
  const QuantizedValue* y = scene.Integers(p.y);
  return y ? y : scene.IntegersOfAnyScale(p.y);
}

bool IsScale(float x) { return std::isnormal(x) && IsUsualScale(x); }

std::string CheckProduct(const QuantizedScene& scene, const OpDesc& op, const MatrixProduct& p) {
  if (scene.flow().IsRecomputed(op)) return "it is computed again for a gradient";
  if (!scene.flow().IsOnlyOutput(op, op.Output("Out")[0]))
    return "its sums before the activation are read";
  const QuantizedValue* x = scene.IntegersOfAnyScale(p.x);
  if (!x) return "its X is not quantized with one scale";
  const QuantizedValue* y = OperandY(scene, p);
  if (!y) return "its Y is not quantized";
  const VarMeta *x_meta = scene.Meta(p.x), *y_meta = scene.Meta(p.y);
  if (!x_meta || !y_meta || x_meta->shape.rank() < 2 || y_meta->shape.rank() < 2)
    return "an operand is a vector";
  if ((op.type() == "mul" || op.type() == "fc") && y_meta->shape.rank() != 2)
    return "its weight is no matrix";
  if (p.rows > 0 && scene.flow().CertainRank(p.x) != x_meta->shape.rank())
    return "the rank of its X is known only at run time";
  if (!std::isfinite(p.alpha) || !(p.alpha > 0)) return "its factor alpha is not positive";
  if (p.alpha != 1 && x->form.scales.empty()) return "it has a factor alpha, and no frozen scale";
  if (p.alpha != 1 && !IsScale(x->form.Scale() * p.alpha)) return "its factor alpha is extreme";
  if (!HasModerateProducts(x->form, y->form)) return kHuge;
  if (scene.context().FrozenValue(y->integers))
    return CheckWeight(scene, *y, y_meta->shape.rank() - (p.trans_y ? 2 : 1));
  return scene.IntegersOfAnyScale(p.y) ? "" : "its Y has several scales";
}

// The number of columns, if it is known.
int64_t ColumnsOf(const QuantizedScene& scene, const MatrixProduct& p) {
  const Shape& y = scene.Meta(p.y)->shape;
  return y[y.rank() - (p.trans_y ? 2 : 1)];
}

// The bias as a vector, if it is a constant with other dims of 1.
std::string VectorOf(QuantizedScene& scene, const std::string& bias) {
  const Tensor* value = scene.context().FrozenValue(bias);
  if (!value || value->shape().rank() <= 1) return bias;
  return scene.AddConstant(bias, value->Reshaped({value->numel()}).Clone());
}

// X as a tensor whose last dim has the columns of all dims that are no rows.
std::string Flattened(QuantizedScene& scene, const MatrixProduct& p, const std::string& integers,
                      DType dtype, std::vector<OpDesc>& made) {
  const Shape& x = scene.Meta(p.x)->shape;
  if (p.rows <= 0 || x.rank() == p.rows + 1) return integers;
  const Shape& y = scene.Meta(p.y)->shape;
  Shape shape;
  for (int i = 0; i < p.rows; ++i) shape.Append(x[i]);
  shape.Append(y[0]);
  std::string flat = scene.AddTemporary(integers, dtype, shape);
  Ints dims(static_cast<size_t>(p.rows), 0);
  dims.push_back(static_cast<int32_t>(y[0]));
  made.emplace_back("reshape2", SlotList{{"X", {integers}}}, SlotList{{"Out", {flat}}},
                    AttrList{{"shape", dims}});
  return flat;
}

// The form of X with the factor alpha in its scale.
QuantizedForm Scaled(QuantizedScene& scene, QuantizedForm form, float alpha) {
  if (alpha == 1) return form;
  Tensor scale(DType::kFloat32, {1});
  scale.data<float>()[0] = form.scales[0] * alpha;
  form.scales[0] *= alpha;
  form.scale = scene.AddConstant(form.scale, std::move(scale));
  return form;
}

}  // namespace

std::optional<MatrixProduct> MatrixProductOf(const QuantizedScene& scene, const OpDesc& op) {
  const OpSpec& spec = scene.SpecOf(op);
  const bool fc = op.type() == "fc";
  const char *x = fc ? "Input" : "X", *y = fc ? "W" : "Y";
  if (op.Input(x).size() != 1 || op.Input(y).size() != 1 || op.Output("Out").size() != 1)
    return std::nullopt;
  MatrixProduct p = {op.Input(x)[0], op.Input(y)[0]};
  if (fc) {
    if (spec.AttrOf<bool>(op, "padding_weights")) return std::nullopt;
    p.rows = spec.AttrOf<int32_t>(op, "in_num_col_dims");
  } else if (op.type() == "mul") {
    if (spec.AttrOf<int32_t>(op, "y_num_col_dims") != 1) return std::nullopt;
    p.rows = spec.AttrOf<int32_t>(op, "x_num_col_dims");
  } else if (op.type() == "matmul_v2") {
    p.trans_x = spec.AttrOf<bool>(op, "trans_x");
    p.trans_y = spec.AttrOf<bool>(op, "trans_y");
  } else {
    if (spec.AttrOf<int32_t>(op, "head_number") != 1) return std::nullopt;
    p.trans_x = spec.AttrOf<bool>(op, "transpose_X");
    p.trans_y = spec.AttrOf<bool>(op, "transpose_Y");
    p.alpha = spec.AttrOf<float>(op, "alpha");
  }
  return p;
}

AttrList FcActivation(const QuantizedScene& scene, const OpDesc& fc) {
  const auto type = scene.SpecOf(fc).AttrOf<std::string>(fc, "activation_type");
  if (type.empty()) return {};
  AttrList attrs = {{"fuse_activation", type}};
  if (type == "relu6") attrs.push_back({"fuse_alpha", 6.0f});
  if (type == "swish") attrs.push_back({"fuse_alpha", 1.0f});
  return attrs;
}

std::string QuantizeConvolution(QuantizedScene& scene, const OpDesc& op) {
  if (std::string reason = CheckConvolution(scene, op); !reason.empty()) return reason;
  QuantizedEpilogue epilogue = EpilogueOf(op);
  if (!epilogue.bias.empty() && !IsFloat(scene.Meta(epilogue.bias)))
    return "its bias is not of float32";
  if (!FitsResidual(scene, epilogue)) return "its residual has another shape";
  if (!IsFloat(scene.Meta(epilogue.result))) return "its result is not of float32";
  ExtendEpilogue(scene, {.residual = true}, epilogue);
  const QuantizedValue& input = *scene.IntegersOfAnyScale(op.Input("Input")[0]);
  const QuantizedValue& filter = *scene.Integers(op.Input("Filter")[0]);
  OpDesc made("quantized_conv2d", {{"Input", {input.integers}}, {"Filter", {filter.integers}}},
              {{"Output", {epilogue.result}}});
  SetForm(made, "Input", input.form);
  SetForm(made, "Filter", filter.form);
  if (!epilogue.bias.empty()) made.SetInput("Bias", {epilogue.bias});
  for (const char* name :
       {"strides", "paddings", "padding_algorithm", "dilations", "groups", "data_format"})
    if (const Attribute* value = op.FindAttr(name)) made.SetAttr(name, *value);
  SetResidual(scene, epilogue, made);
  SetEpilogue(scene, epilogue, made);
  return scene.Replace(epilogue.ops, {made});
}

std::string QuantizeProduct(QuantizedScene& scene, const OpDesc& op) {
  const std::optional<MatrixProduct> p = MatrixProductOf(scene, op);
  if (!p) return "its attrs have no integer form";
  if (std::string reason = CheckProduct(scene, op, *p); !reason.empty()) return reason;
  QuantizedEpilogue epilogue;
  epilogue.ops = {&op};
  epilogue.result = op.Output("Out")[0];
  if (!IsFloat(scene.Meta(epilogue.result))) return "its result is not of float32";
  if (op.type() == "fc") {
    if (op.HasInput("Bias")) epilogue.bias = op.Input("Bias")[0];
    epilogue.activation = FcActivation(scene, op);
  }
  ExtendEpilogue(scene, {.bias_columns = ColumnsOf(scene, *p), .residual = true}, epilogue);
  const QuantizedValue& x = *scene.IntegersOfAnyScale(p->x);
  const QuantizedValue& y = *OperandY(scene, *p);
  std::vector<OpDesc> made;
  const std::string rows = Flattened(scene, *p, x.integers, x.form.dtype, made);
  OpDesc product("quantized_matmul", {{"X", {rows}}, {"Y", {y.integers}}},
                 {{"Out", {epilogue.result}}}, {{"trans_x", p->trans_x}, {"trans_y", p->trans_y}});
  SetForm(product, "X", Scaled(scene, x.form, p->alpha));
  SetForm(product, "Y", y.form);
  if (!epilogue.bias.empty()) product.SetInput("Bias", {VectorOf(scene, epilogue.bias)});
  SetResidual(scene, epilogue, product);
  SetEpilogue(scene, epilogue, product);
  made.push_back(product);
  return scene.Replace(epilogue.ops, made);
}

}  // namespace coracle::inline internal
