#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/quantized_form.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace coracle::inline internal {
namespace {

std::nullopt_t Refuse(std::string* why, const char* reason) {
  if (why) *why = reason;
  return std::nullopt;
}

const Tensor* FrozenIn(const OpDesc& op, const char* slot, const PassContext& context) {
  return op.Input(slot).size() == 1 ? context.FrozenValue(op.Input(slot)[0]) : nullptr;
}

std::vector<int32_t> Integers(const Tensor& value) {
  std::vector<int32_t> numbers;
  for (int64_t i = 0; i < value.numel(); ++i)
    numbers.push_back(value.dtype() == DType::kInt8 ? value.data<int8_t>()[i]
                                                    : value.data<uint8_t>()[i]);
  return numbers;
}

// Reads Scale and ZeroPoint. `integers` is the quantised tensor.
std::optional<QuantizedForm> ReadForm(const BlockDesc& block, const PassContext& context,
                                      const OpDesc& op, const std::string& integers,
                                      std::string* why) {
  const OpSpec& spec = context.ops.Get(op.type());
  const VarDesc* desc = block.FindVarRecursive(integers);
  if (!desc || !IsByteType(desc->dtype())) return Refuse(why, "its integers do not have 8 bits");
  if (spec.AttrOf<int32_t>(op, "block_size") != 0) return Refuse(why, "its scales are of blocks");
  const Tensor *scale = FrozenIn(op, "Scale", context), *zero = FrozenIn(op, "ZeroPoint", context);
  if (!scale || (op.HasInput("ZeroPoint") && !zero))
    return Refuse(why, "its scale or zero point is known only at run time");
  QuantizedForm form;
  form.dtype = desc->dtype();
  if (scale->dtype() != DType::kFloat32 || (zero && zero->dtype() != form.dtype) ||
      scale->numel() == 0)
    return Refuse(why, "its scale is not of float32");
  form.scale = op.Input("Scale")[0];
  form.scales.assign(scale->data<float>(), scale->data<float>() + scale->numel());
  if (scale->numel() > 1) {
    const int rank = desc->shape().rank();
    const auto axis = spec.AttrOf<int32_t>(op, "axis");
    form.axis = axis < 0 ? axis + rank : axis;
    if (form.axis < 0 || form.axis >= rank) return Refuse(why, "its axis is unknown");
    const Tensor* values = context.FrozenValue(integers);
    const int64_t count = (values ? values->shape() : desc->shape())[form.axis];
    if (count != scale->numel()) return Refuse(why, "the number of its scales is another one");
  }
  if (zero && zero->numel() != scale->numel()) return Refuse(why, "it has several zero points");
  if (zero) form.zero_points = Integers(*zero);
  const bool zeros = std::all_of(form.zero_points.begin(), form.zero_points.end(),
                                 [](int32_t z) { return z == 0; });
  if (zeros)
    form.zero_points.clear();
  else
    form.zero_point = op.Input("ZeroPoint")[0];
  form.least = LeastOf(form.dtype);
  form.most = MostOf(form.dtype);
  return form;
}

bool IsQuantize(const OpDesc& op) {
  return op.type() == "affine_quantize" && op.Input("X").size() == 1 &&
         op.Output("Out").size() == 1;
}
bool IsDequantize(const OpDesc& op) {
  return op.type() == "affine_dequantize" && op.Input("X").size() == 1 &&
         op.Output("Out").size() == 1;
}

// Whether the variable has one element in each run: it is frozen, or a dynamic_scale alone writes
// to it.
bool IsOneNumber(const std::string& name, const BlockDesc& block, const PassContext& context) {
  if (const Tensor* value = context.FrozenValue(name)) return value->numel() == 1;
  const auto writers = block.Uses(name).writers;
  return writers.size() == 1 && writers[0]->type() == "dynamic_scale" &&
         context.captured.count(name) == 0 && context.feeds.count(name) == 0;
}

// The names of the parameters of an affine_dequantize of bytes to float32. They are one number
// each, and not all of them are frozen.
std::optional<QuantizedForm> FormOfARun(const BlockDesc& block, const PassContext& context,
                                        const ValueFlow& flow, const OpDesc& op) {
  const OpSpec& spec = context.ops.Get(op.type());
  const VarDesc* integers = block.FindVarRecursive(op.Input("X")[0]);
  if (!integers || !IsByteType(integers->dtype()) ||
      DTypeOfTensor(block, op.Output("Out")[0]) != DType::kFloat32 ||
      spec.AttrOf<int32_t>(op, "block_size") != 0 || !HasOneStep(op, block, context))
    return std::nullopt;
  QuantizedForm form;
  form.dtype = integers->dtype();
  form.scale = op.Input("Scale")[0];
  if (op.HasInput("ZeroPoint")) form.zero_point = op.Input("ZeroPoint")[0];
  const VarDesc* scale = block.FindVarRecursive(form.scale);
  const VarDesc* zero = block.FindVarRecursive(form.zero_point);
  const bool typed = scale && scale->dtype() == DType::kFloat32 &&
                     (form.zero_point.empty() || (zero && zero->dtype() == form.dtype));
  const bool same = flow.IsConstantInARun(form.scale) &&
                    (form.zero_point.empty() || flow.IsConstantInARun(form.zero_point));
  return typed && same ? std::optional(std::move(form)) : std::nullopt;
}

}  // namespace

int64_t LeastOf(DType dtype) { return dtype == DType::kInt8 ? -128 : 0; }
int64_t MostOf(DType dtype) { return dtype == DType::kInt8 ? 127 : 255; }
bool IsByteType(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kUInt8; }

bool QuantizedForm::HasWholeRange() const {
  return least == LeastOf(dtype) && most == MostOf(dtype);
}

bool QuantizedForm::HasPositiveScales() const {
  return std::all_of(scales.begin(), scales.end(),
                     [](float s) { return s > 0 && IsUsualScale(s); });
}

bool MeansSame(const QuantizedForm& a, const QuantizedForm& b) {
  return a.dtype == b.dtype && a.axis == b.axis && a.scales.size() == b.scales.size() &&
         std::memcmp(a.scales.data(), b.scales.data(), a.scales.size() * sizeof(float)) == 0 &&
         a.zero_points == b.zero_points;
}

bool QuantizesElements(const OpDesc& op, const PassContext& context) {
  if (!IsQuantize(op) && !IsDequantize(op)) return false;
  const Tensor *scale = FrozenIn(op, "Scale", context), *zero = FrozenIn(op, "ZeroPoint", context);
  return scale && scale->numel() == 1 && (zero ? zero->numel() == 1 : !op.HasInput("ZeroPoint"));
}

bool HasOneStep(const OpDesc& op, const BlockDesc& block, const PassContext& context) {
  if (!IsQuantize(op) && !IsDequantize(op)) return false;
  return op.Input("Scale").size() == 1 && IsOneNumber(op.Input("Scale")[0], block, context) &&
         (!op.HasInput("ZeroPoint") || IsOneNumber(op.Input("ZeroPoint")[0], block, context));
}

bool IgnoresOrder(const OpDesc& op) { return op.type() == "dynamic_scale"; }

bool WorksOnElements(const OpDesc& op, const OpSpec& spec, const BlockDesc& block,
                     const PassContext& context) {
  return spec.elementwise || HasOneStep(op, block, context);
}

bool IsTable(const OpSpec& spec, std::string_view slot) {
  const std::vector<std::string>& tables = spec.rows.tables;
  return std::find(tables.begin(), tables.end(), slot) != tables.end();
}

std::optional<QuantizedForm> FormWritten(const BlockDesc& block, const PassContext& context,
                                         const OpDesc& quantize, std::string* why) {
  if (!IsQuantize(quantize)) return Refuse(why, "it is no affine_quantize");
  if (DTypeOfTensor(block, quantize.Input("X")[0]) != DType::kFloat32)
    return Refuse(why, "it does not read float32");
  auto form = ReadForm(block, context, quantize, quantize.Output("Out")[0], why);
  const OpSpec& spec = context.ops.Get(quantize.type());
  if (form && spec.AttrOf<int32_t>(quantize, "quotient_dtype") != -1)
    return Refuse(why, "its quotient has 16 bits");
  if (form) form->rounds_away = spec.AttrOf<std::string>(quantize, "round_mode") != "even";
  const auto least = spec.AttrOf<int64_t>(quantize, "qmin");
  const auto most = spec.AttrOf<int64_t>(quantize, "qmax");
  if (form && (least != 0 || most != 0)) {
    form->least = least;
    form->most = most;
  }
  return form;
}

std::optional<QuantizedForm> FormRead(const BlockDesc& block, const PassContext& context,
                                      const OpDesc& dequantize, std::string* why) {
  if (!IsDequantize(dequantize)) return Refuse(why, "it is no affine_dequantize");
  if (DTypeOfTensor(block, dequantize.Output("Out")[0]) != DType::kFloat32)
    return Refuse(why, "it does not write float32");
  return ReadForm(block, context, dequantize, dequantize.Input("X")[0], why);
}

QuantizedValues::QuantizedValues(const BlockDesc& block, const PassContext& context,
                                 const ValueFlow& flow) {
  block.ForEachOp([&](const OpDesc& op) {
    if (!IsDequantize(op) || flow.IsRecomputed(op)) return;
    const std::string &q = op.Input("X")[0], &out = op.Output("Out")[0];
    if (!flow.IsConstantInARun(q) || !flow.IsConstantInARun(out)) return;
    if (auto form = FormRead(block, context, op))
      values_[out] = {&op, q, std::move(*form)};
    else if (auto names = FormOfARun(block, context, flow, op))
      of_a_run_[out] = {&op, q, std::move(*names)};
  });
}

const QuantizedValue* QuantizedValues::Find(const std::string& var) const {
  const auto found = values_.find(var);
  return found == values_.end() ? nullptr : &found->second;
}

const QuantizedValue* QuantizedValues::FindOfARun(const std::string& var) const {
  const auto found = of_a_run_.find(var);
  return found == of_a_run_.end() ? nullptr : &found->second;
}

void SetForm(OpDesc& op, const std::string& prefix, const QuantizedForm& form) {
  op.SetInput(prefix + "Scale", {form.scale});
  if (!form.zero_point.empty()) op.SetInput(prefix + "ZeroPoint", {form.zero_point});
}

}  // namespace coracle::inline internal
