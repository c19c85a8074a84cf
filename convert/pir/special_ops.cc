// Ops that no row of the table can describe.

#include <coracle/convert/narrow.h>
#include <coracle/convert/pir/op_access.h>
#include <coracle/convert/pir/op_reader.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <cmath>
#include <unordered_map>

namespace coracle::pir {
namespace {

using SpecialFn = void (*)(ProgramBuilder&, const Op&);

// A variable of the value with this element type.
std::string Cast(ProgramBuilder& builder, const Op& op, const ValuePtr& value, DType dtype) {
  const std::string var = builder.VarOf(op, value);
  if (value->type.dtype == dtype) return var;
  return builder.writer()
      .Make("cast", {{"X", {var}}},
            {{"in_dtype", static_cast<int32_t>(value->type.dtype)},
             {"out_dtype", static_cast<int32_t>(dtype)}})
      .name();
}

// --- constants ---

ValuePtr NewConstant(ProgramBuilder& builder, Constant constant) {
  const auto value = std::make_shared<Value>();
  value->type = {Type::Kind::kTensor, constant.dtype, constant.shape, {}, ""};
  value->block = &builder.writer().block();
  value->constant = std::move(constant);
  return value;
}

DType ConstantType(const ProgramBuilder& builder, const Op& op) {
  const Type& type = OnlyResult(builder, op).type;
  if (type.kind != Type::Kind::kTensor) builder.Refuse(op, "its result is no dense tensor");
  return type.dtype;
}

// The attribute if it holds an integer.
std::optional<int64_t> IntegerAttr(const Op& op, const char* name) {
  const Attribute* value = op.Find(name);
  if (!value) return std::nullopt;
  if (const auto* small = std::get_if<int32_t>(value)) return *small;
  if (const auto* large = std::get_if<int64_t>(value)) return *large;
  return std::nullopt;
}

// full(shape, value), and full_(output, shape, value), whose operands after the output are
// attributes too.
void ReadFull(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"shape", "value", "dtype"});
  const Result& result = OnlyResult(builder, op);
  Constant constant;
  constant.dtype = ConstantType(builder, op);
  constant.shape = result.type.shape;
  if (const Attribute* shape = op.Find("shape")) {
    const auto dims =
        std::get<std::vector<int64_t>>(ConvertTo(builder, op, "shape", *shape, AttrType::kLongs));
    if (dims.size() > Shape::kMaxRank) builder.Refuse(op, "its shape has too many dims");
    constant.shape = Shape(dims);
  }
  if (!constant.shape.IsKnown()) builder.Refuse(op, "its shape is unknown");
  const bool floats = IsFloating(constant.dtype);
  double fill = 0;
  if (const std::optional<int64_t> integer = IntegerAttr(op, "value"); integer && !floats) {
    constant.exact = integer;
    fill = static_cast<double>(*integer);
  } else {
    fill = Get<double>(builder, op, "value", 0);
  }
  if (!floats && !constant.exact && !(fill >= -0x1p63 && fill < 0x1p63))
    builder.Refuse(op, fmt::format("its value {} is beyond the range of int64", fill));
  if (IsComplex(constant.dtype)) builder.Refuse(op, "a complex constant");
  constant.fill = floats ? fill : std::trunc(fill);
  builder.Define(op, result, NewConstant(builder, std::move(constant)));
}

void ReadFullIntArray(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"value", "dtype"});
  Constant constant;
  constant.dtype = ConstantType(builder, op);
  if (constant.dtype != DType::kInt32 && constant.dtype != DType::kInt64)
    builder.Refuse(op, fmt::format("integers of type {}", ToString(constant.dtype)));
  constant.integers = GetInts(builder, op, "value");
  if (constant.dtype == DType::kInt32) {
    for (int64_t value : constant.integers)
      if (value < INT32_MIN || value > INT32_MAX) builder.Refuse(op, "a value beyond int32");
  }
  constant.shape = {static_cast<int64_t>(constant.integers.size())};
  builder.Define(op, OnlyResult(builder, op), NewConstant(builder, std::move(constant)));
}

// Throws if a number is beyond int32.
std::vector<int32_t> SmallIntegers(const ProgramBuilder& builder, const Op& op,
                                   const std::vector<double>& numbers) {
  for (double n : numbers)
    if (!(std::abs(n) < 0x1p31)) builder.Refuse(op, "a value beyond int32");
  return ToInt32(std::vector<int64_t>(numbers.begin(), numbers.end()), "a value");
}

// The values in the attribute for their type: assign_value, set_value.
AttrList ValueAttrs(const ProgramBuilder& builder, const Op& op, DType dtype) {
  AttrList attrs = {{"dtype", static_cast<int32_t>(dtype)}};
  const Attribute* values = op.Find("values");
  if (!values) builder.Refuse(op, "it has no values");
  std::vector<double> numbers;
  if (const auto* bools = std::get_if<std::vector<bool>>(values))
    numbers.assign(bools->begin(), bools->end());
  if (const auto* floats = std::get_if<std::vector<double>>(values)) numbers = *floats;
  const auto* integers = std::get_if<std::vector<int64_t>>(values);
  if (integers && dtype == DType::kInt64) {
    attrs.push_back({"int64_values", *integers});
    return attrs;
  }
  if (integers) numbers.assign(integers->begin(), integers->end());
  switch (dtype) {
    case DType::kBool:
      attrs.push_back({"bool_values", SmallIntegers(builder, op, numbers)});
      break;
    case DType::kInt32:
      attrs.push_back({"int32_values", SmallIntegers(builder, op, numbers)});
      break;
    case DType::kInt64:
      for (double n : numbers)
        if (!(std::abs(n) < 0x1p63)) builder.Refuse(op, "a value beyond int64");
      attrs.push_back({"int64_values", std::vector<int64_t>(numbers.begin(), numbers.end())});
      break;
    case DType::kFloat32:
      attrs.push_back({"fp32_values", std::vector<float>(numbers.begin(), numbers.end())});
      break;
    case DType::kFloat64:
      attrs.push_back({"fp64_values", numbers});
      break;
    default:
      builder.Refuse(op, fmt::format("values of type {}", ToString(dtype)));
  }
  return attrs;
}

void ReadAssignValue(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"shape", "dtype", "values"});
  AttrList attrs = ValueAttrs(builder, op, ConstantType(builder, op));
  attrs.push_back({"shape", Get<std::vector<int32_t>>(builder, op, "shape", {})});
  builder.Append(op, "assign_value", {}, {{"Out", 0}}, std::move(attrs));
}

// --- lists ---

void ReadCombine(ProgramBuilder& builder, const Op& op) {
  const auto list = std::make_shared<Value>();
  list->type.kind = Type::Kind::kList;
  list->block = &builder.writer().block();
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const ValuePtr item = Needed(builder, op, i);
    if (item->type.kind == Type::Kind::kList) builder.Refuse(op, "a list of lists");
    list->items.push_back(item);
    list->type.items.push_back(item->type);
  }
  builder.Define(op, OnlyResult(builder, op), list);
}

void ReadTakeApart(ProgramBuilder& builder, const Op& op) {
  const ValuePtr list = Needed(builder, op, 0);
  if (list->type.kind != Type::Kind::kList || list->items.size() != op.results.size()) {
    builder.Refuse(op, fmt::format("its operand has {} tensors, and it has {} results",
                                   list->items.size(), op.results.size()));
  }
  for (size_t i = 0; i < op.results.size(); ++i) builder.Define(op, op.results[i], list->items[i]);
}

void ReadTakeOne(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"index"});
  const ValuePtr list = Needed(builder, op, 0);
  const int64_t index = Get<int64_t>(builder, op, "index", 0);
  if (index < 0 || static_cast<size_t>(index) >= list->items.size())
    builder.Refuse(op, fmt::format("tensor {} of a list of {}", index, list->items.size()));
  builder.Define(op, OnlyResult(builder, op), list->items[static_cast<size_t>(index)]);
}

// --- reductions ---

// The operand. Paddle's sum and prod cast it before they add up: to `dtype`, or bool and integers
// to int64, which is the type of the result.
std::string Summands(ProgramBuilder& builder, const Op& op) {
  const ValuePtr x = Needed(builder, op, 0);
  const std::string name = op.ShortName();
  const Type& result = OnlyResult(builder, op).type;
  if ((name != "sum" && name != "prod") || result.kind != Type::Kind::kTensor)
    return builder.VarOf(op, x);
  const int32_t dtype = Get<int32_t>(builder, op, "dtype", -1);
  if (dtype >= 0) return Cast(builder, op, x, static_cast<DType>(dtype));
  const bool whole = x->type.dtype == DType::kBool || IsInteger(x->type.dtype);
  return whole && IsInteger(result.dtype) ? Cast(builder, op, x, result.dtype)
                                          : builder.VarOf(op, x);
}

// An empty list of axes means all.
void ReadReduction(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"axis", "keepdim", "dtype", "reduce_all"});
  std::vector<int64_t> axes = GetInts(builder, op, "axis");
  if (!op.Find("axis") && op.operands.size() > 1) {
    const auto known = KnownIntegers(builder, op, Needed(builder, op, 1));
    if (!known) builder.Refuse(op, "its operand axis must be a constant");
    axes = *known;
  }
  const bool all = axes.empty() || Get<bool>(builder, op, "reduce_all", false);
  AttrList attrs = {{"keep_dim", Get<bool>(builder, op, "keepdim", false)}, {"reduce_all", all}};
  if (!all) {
    attrs.push_back({"dim", ConvertTo(builder, op, "axis", axes, AttrType::kInts)});
  }
  const int32_t dtype = Get<int32_t>(builder, op, "dtype", -1);
  if (dtype >= 0) attrs.push_back({"out_dtype", dtype});
  builder.Append(op, "reduce_" + op.ShortName(), {{"X", {Summands(builder, op)}}}, {{"Out", 0}},
                 std::move(attrs));
}

// --- others ---

void ReadArange(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"dtype"});
  const DType dtype = ConstantType(builder, op);
  SlotList inputs;
  for (size_t i = 0; i < 3; ++i) {
    static constexpr const char* kSlots[] = {"Start", "End", "Step"};
    inputs.push_back({kSlots[i], {Cast(builder, op, Needed(builder, op, i), dtype)}});
  }
  builder.Append(op, "range", std::move(inputs), {{"Out", 0}});
}

void ReadLinspace(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"dtype"});
  const DType dtype = ConstantType(builder, op);
  builder.Append(op, "linspace",
                 {{"Start", {Cast(builder, op, Needed(builder, op, 0), dtype)}},
                  {"Stop", {Cast(builder, op, Needed(builder, op, 1), dtype)}},
                  {"Num", {builder.VarOf(op, Needed(builder, op, 2))}}},
                 {{"Out", 0}}, {{"dtype", static_cast<int32_t>(dtype)}});
}

// Out has the shape of the second operand.
void ReadExpandAs(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"target_shape"});
  const std::string x = builder.VarOf(op, Needed(builder, op, 0));
  const ValuePtr like = builder.Operand(op, 1);
  if (!like) {
    builder.Append(op, "expand_v2", {{"X", {x}}}, {{"Out", 0}},
                   {{"shape", Get<std::vector<int32_t>>(builder, op, "target_shape", {})}});
    return;
  }
  const std::string shape =
      builder.writer().Make("shape", {{"Input", {builder.VarOf(op, like)}}}).name();
  builder.Append(op, "expand_v2", {{"X", {x}}, {"Shape", {shape}}}, {{"Out", 0}});
}

void ReadDeformableConv(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op,
             {"strides", "paddings", "dilations", "deformable_groups", "groups", "im2col_step"});
  SlotList inputs = {{"Input", {builder.VarOf(op, Needed(builder, op, 0))}},
                     {"Offset", {builder.VarOf(op, Needed(builder, op, 1))}},
                     {"Filter", {builder.VarOf(op, Needed(builder, op, 2))}}};
  const ValuePtr mask = builder.Operand(op, 3);
  if (mask) inputs.push_back({"Mask", {builder.VarOf(op, mask)}});
  AttrList attrs;
  for (const char* name : {"strides", "paddings", "dilations"})
    attrs.push_back({name, Get<std::vector<int32_t>>(builder, op, name, {})});
  for (const char* name : {"deformable_groups", "groups", "im2col_step"})
    attrs.push_back({name, Get<int32_t>(builder, op, name, 1)});
  builder.Append(op, mask ? "deformable_conv" : "deformable_conv_v1", std::move(inputs),
                 {{"Output", 0}}, std::move(attrs));
}

// Attention with the layout batch, sequence, heads, columns, and the scale 1 / sqrt(columns).
void ReadFlashAttention(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"dropout", "causal", "return_softmax", "is_test", "rng_name"});
  const ValuePtr q = Needed(builder, op, 0);
  const int rank = q->type.shape.rank();
  if (rank != 4 || q->type.shape[3] <= 0) builder.Refuse(op, "its number of columns is unknown");
  SlotList inputs = {{"Q", {builder.VarOf(op, q)}},
                     {"K", {builder.VarOf(op, Needed(builder, op, 1))}},
                     {"V", {builder.VarOf(op, Needed(builder, op, 2))}}};
  if (const ValuePtr mask = builder.Operand(op, 4))
    inputs.push_back({"Mask", {builder.VarOf(op, mask)}});
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(q->type.shape[3])));
  builder.Append(op, "scaled_dot_product_attention", std::move(inputs), {{"Out", 0}},
                 {{"scale", scale},
                  {"layout", "BSHD"},
                  {"is_causal", Get<bool>(builder, op, "causal", false)},
                  {"dropout_prob", Get<float>(builder, op, "dropout", 0)},
                  {"is_test", Get<bool>(builder, op, "is_test", false)}});
}

void ReadSoftmaxMask(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {});
  const std::string sum =
      builder.writer()
          .Make("elementwise_add", {{"X", {builder.VarOf(op, Needed(builder, op, 0))}},
                                    {"Y", {builder.VarOf(op, Needed(builder, op, 1))}}})
          .name();
  builder.Append(op, "softmax", {{"X", {sum}}}, {{"Out", 0}}, {{"axis", int32_t{-1}}});
}

// A startup program gives parameters their first values.
void ReadSetParameter(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"parameter_name"});
  const auto name = Get<std::string>(builder, op, "parameter_name", "");
  if (name.empty()) builder.Refuse(op, "it names no parameter");
  BlockDesc& root = builder.program().Root();
  if (&builder.writer().block() != &root) builder.Refuse(op, "a parameter that a block sets");
  if (root.FindVar(name)) {
    builder.Refuse(op, fmt::format("it sets {}, which the program also reads, feeds or sets "
                                   "elsewhere: split the program",
                                   Quote(name)));
  }
  const std::string from = builder.VarOf(op, Needed(builder, op, 0));
  const VarMeta meta = builder.writer().Var(from).desc().meta();
  VarDesc& var = builder.AddNamed(op, name);
  var.SetMeta(meta);
  var.SetPersistable(true);
  builder.writer().Append("assign", {{"X", {from}}}, {{"Out", {name}}});
}

// A list that passes on.
void ReadShadowFeedTensors(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"dst_place_type"});
  builder.Define(op, OnlyResult(builder, op), Needed(builder, op, 0));
}

// set_value(x, starts, ends, steps) and set_value_with_tensor(x, values, starts, ends, steps).
void ReadSetValue(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op,
             {"starts", "ends", "steps", "axes", "decrease_axes", "none_axes", "shape", "values",
              "dtype"});
  size_t next = 0;
  const ValuePtr x = Needed(builder, op, next++);
  SlotList inputs = {{"Input", {builder.VarOf(op, x)}}};
  AttrList attrs;
  if (op.ShortName() == "set_value_with_tensor") {
    inputs.push_back({"ValueTensor", {builder.VarOf(op, Needed(builder, op, next++))}});
  } else {
    attrs = ValueAttrs(builder, op, x->type.dtype);
    attrs.push_back({"shape", GetInts(builder, op, "shape")});
  }
  for (const auto& [name, slot] :
       {std::pair{"starts", "StartsTensorList"}, std::pair{"ends", "EndsTensorList"},
        std::pair{"steps", "StepsTensorList"}}) {
    if (op.Find(name)) {
      attrs.push_back({name, GetInts(builder, op, name)});
      continue;
    }
    const ValuePtr bounds = Needed(builder, op, next++);
    if (const auto known = KnownIntegers(builder, op, bounds))
      attrs.push_back({name, *known});
    else if (bounds->type.kind == Type::Kind::kList)
      inputs.push_back({slot, builder.VarsOf(op, bounds)});
    else
      builder.Refuse(op, fmt::format("its operand {} must be a constant or a list", name));
  }
  for (const char* name : {"axes", "decrease_axes", "none_axes"})
    attrs.push_back({name, GetInts(builder, op, name)});
  builder.Append(op, "set_value", std::move(inputs), {{"Out", 0}}, std::move(attrs));
}

// --- tensor arrays ---

void ReadCreateArray(ProgramBuilder& builder, const Op& op) {
  if (OnlyResult(builder, op).type.kind != Type::Kind::kArray)
    builder.Refuse(op, "its result is no tensor array");
  builder.Declare(op, 0);
}

// array_write(array, x, i): changes the array in place.
void ReadArrayWrite(ProgramBuilder& builder, const Op& op) {
  const ValuePtr array = Needed(builder, op, 0);
  builder.writer().Append("write_to_array",
                          {{"X", {builder.VarOf(op, Needed(builder, op, 1))}},
                           {"I", {builder.VarOf(op, Needed(builder, op, 2))}}},
                          {{"Out", {builder.VarOf(op, array)}}});
  builder.Define(op, OnlyResult(builder, op), array);
}

void ReadArrayRead(ProgramBuilder& builder, const Op& op) {
  builder.Append(op, "read_from_array",
                 {{"X", {builder.VarOf(op, Needed(builder, op, 0))}},
                  {"I", {builder.VarOf(op, Needed(builder, op, 1))}}},
                 {{"Out", 0}});
}

void ReadArrayLength(ProgramBuilder& builder, const Op& op) {
  builder.Append(op, "lod_array_length", {{"X", {builder.VarOf(op, Needed(builder, op, 0))}}},
                 {{"Out", 0}});
}

void ReadArrayToTensor(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"axis", "use_stack"});
  std::vector<OutSlot> outputs = {{"Out", 0}};
  if (op.results.size() > 1) outputs.push_back({"OutIndex", 1});
  builder.Append(op, "tensor_array_to_tensor", {{"X", {builder.VarOf(op, Needed(builder, op, 0))}}},
                 outputs,
                 {{"axis", Get<int32_t>(builder, op, "axis", 0)},
                  {"use_stack", Get<bool>(builder, op, "use_stack", false)}});
}

const std::unordered_map<std::string, SpecialFn>& Specials() {
  static const std::unordered_map<std::string, SpecialFn> specials = {
      {"builtin.combine", ReadCombine},
      {"builtin.split", ReadTakeApart},
      {"builtin.set_parameter", ReadSetParameter},
      {"builtin.slice", ReadTakeOne},
      {"pd_op.if", ReadIf},
      {"pd_op.while", ReadWhile},
      {"pd_op.full", ReadFull},
      {"pd_op.full_", ReadFull},
      {"pd_op.full_int_array", ReadFullIntArray},
      {"pd_op.assign_value", ReadAssignValue},
      {"pd_op.assign_value_", ReadAssignValue},
      {"pd_op.mean", ReadReduction},
      {"pd_op.sum", ReadReduction},
      {"pd_op.max", ReadReduction},
      {"pd_op.min", ReadReduction},
      {"pd_op.prod", ReadReduction},
      {"pd_op.all", ReadReduction},
      {"pd_op.any", ReadReduction},
      {"pd_op.arange", ReadArange},
      {"pd_op.linspace", ReadLinspace},
      {"pd_op.expand_as", ReadExpandAs},
      {"pd_op.deformable_conv", ReadDeformableConv},
      {"pd_op.flash_attn", ReadFlashAttention},
      {"pd_op.fused_softmax_mask", ReadSoftmaxMask},
      {"pd_op.einsum", ReadEinsum},
      {"pd_op.index_put", ReadIndexPut},
      {"pd_op.index_put_", ReadIndexPut},
      {"pd_op.lerp", ReadLerp},
      {"pd_op.lerp_", ReadLerp},
      {"pd_op.put_along_axis", ReadPutAlongAxis},
      {"pd_op.put_along_axis_", ReadPutAlongAxis},
      {"pd_op.repeat_interleave", ReadRepeatInterleave},
      {"pd_op.shadow_feed_tensors", ReadShadowFeedTensors},
      {"pd_op.swiglu", ReadSwiglu},
      {"pd_op.take_along_axis", ReadTakeAlongAxis},
      {"pd_op.set_value", ReadSetValue},
      {"pd_op.set_value_", ReadSetValue},
      {"pd_op.set_value_with_tensor", ReadSetValue},
      {"pd_op.set_value_with_tensor_", ReadSetValue},
      {"pd_op.create_array", ReadCreateArray},
      {"pd_op.array_write_", ReadArrayWrite},
      {"pd_op.array_read", ReadArrayRead},
      {"pd_op.array_length", ReadArrayLength},
      {"pd_op.array_to_tensor", ReadArrayToTensor},
  };
  return specials;
}

}  // namespace

bool ReadSpecial(ProgramBuilder& builder, const Op& op) {
  const auto found = Specials().find(op.name);
  if (found == Specials().end()) return false;
  const bool with_blocks = found->second == ReadIf || found->second == ReadWhile;
  if (!op.blocks.empty() && !with_blocks) builder.Refuse(op, "an op with blocks of its own");
  found->second(builder, op);
  return true;
}

std::vector<std::string> SpecialOps() {
  std::vector<std::string> names;
  for (const auto& [name, fn] : Specials()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace coracle::pir
