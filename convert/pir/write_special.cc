// Writes ops that no row of the table can describe.

#include <coracle/convert/pir/program_writer.h>
#include <coracle/convert/pir/signatures.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace coracle::pir {
namespace {

using Longs = std::vector<int64_t>;

Json DTypeAttr(DType dtype) { return AttrJson("dtype", 't', static_cast<int32_t>(dtype)); }
Json PlaceAttr() { return AttrJson("place", 'p', {}); }

// --- constants ---

// The number of a fill_constant. Integers keep all their digits.
Attribute FillOf(const ProgramWriter& writer, const OpDesc& op, DType dtype) {
  const auto text = writer.Get<std::string>(op, "str_value");
  const auto value = static_cast<double>(writer.Get<float>(op, "value"));
  int64_t integer = 0;
  double number = 0;
  if (text.empty()) return value;
  if (IsInteger(dtype) && ParseInt64(text, &integer)) return integer;
  if (!ParseDouble(text, &number))
    writer.Refuse(op, fmt::format("its value {} is no number", Quote(text)));
  return number;
}

void WriteFill(ProgramWriter& writer, const OpDesc& op) {
  const auto dtype = static_cast<DType>(writer.Get<int32_t>(op, "dtype"));
  const Attribute fill = FillOf(writer, op, dtype);
  const auto* integer = std::get_if<int64_t>(&fill);
  const double value = integer ? writer.ExactNumber(op, *integer) : std::get<double>(fill);
  const bool sized = op.HasInput("ShapeTensor") || op.HasInput("ShapeTensorList");
  const auto shape = writer.Get<Longs>(op, "shape");
  if (!sized && !op.HasInput("ValueTensor")) {
    return writer.Emit(op, "1.full", {}, {"Out"},
                       {AttrJson("shape", 'A', shape), AttrJson("value", 'd', value),
                        DTypeAttr(dtype), PlaceAttr()});
  }
  const int64_t number = op.HasInput("ValueTensor") ? writer.Operand(op, "ValueTensor")
                                                    : writer.Number(op, dtype, value);
  int64_t dims = sized ? writer.Operand(op, "ShapeTensor") : writer.Numbers(op, shape);
  if (dims == 0) dims = writer.Operand(op, "ShapeTensorList");
  writer.Emit(op, "1.full_with_tensor", {number, dims}, {"Out"}, {DTypeAttr(dtype)});
}

// The list of values in the attr for their type.
Attribute ValuesOf(const ProgramWriter& writer, const OpDesc& op, DType dtype) {
  if (const Attribute* given = op.FindAttr("values")) {
    const auto* scalars = std::get_if<std::vector<Scalar>>(given);
    if (!scalars || !scalars->empty())
      writer.Refuse(op, "its values are scalars, which are not written");
  }
  switch (dtype) {
    case DType::kBool: {
      const auto values = writer.Get<std::vector<int32_t>>(op, "bool_values");
      return std::vector<bool>(values.begin(), values.end());
    }
    case DType::kInt32:
      return writer.AttrOf(op, "int32_values");
    case DType::kInt64:
      return writer.AttrOf(op, "int64_values");
    case DType::kFloat32:
      return writer.AttrOf(op, "fp32_values");
    case DType::kFloat64:
      return writer.AttrOf(op, "fp64_values");
    default:
      writer.Refuse(op, fmt::format("values of {} are not written", ToString(dtype)));
  }
}

void WriteValues(ProgramWriter& writer, const OpDesc& op) {
  const auto dtype = static_cast<DType>(writer.Get<int32_t>(op, "dtype"));
  const auto shape = writer.Get<std::vector<int32_t>>(op, "shape");
  const Attribute values = ValuesOf(writer, op, dtype);
  std::string out;
  op.ForEachOutput([&](const std::string& name) { out = name; });
  const bool integers = dtype == DType::kInt32 || dtype == DType::kInt64;
  if (integers && shape.size() == 1 && !out.starts_with("assign_value_")) {
    return writer.Emit(
        op, "1.full_int_array", {}, {"Out"},
        {AttrJson("value", 'L', AttributeAs<Longs>(values)), DTypeAttr(dtype), PlaceAttr()});
  }
  writer.Emit(op, "1.assign_value", {}, {"Out"},
              {AttrJson("shape", 'I', shape), DTypeAttr(dtype), AttrJson("values", 'v', values),
               PlaceAttr()});
}

// --- reductions ---

bool ReducesAll(const ProgramWriter& writer, const OpDesc& op) {
  const auto dims = writer.Get<std::vector<int32_t>>(op, "dim");
  return writer.Get<bool>(op, "reduce_all") || dims.empty() ||
         static_cast<int>(dims.size()) == writer.TypeOfSlot(op, "X").shape.rank();
}

// The sum of integers and bool has the type of the result only if that is given.
int32_t SumType(const ProgramWriter& writer, const OpDesc& op) {
  const auto given = writer.Get<int32_t>(op, "out_dtype");
  const DType x = writer.TypeOfSlot(op, "X").dtype, dtype = writer.TypeOfSlot(op, "Out").dtype;
  const bool whole = x == DType::kBool || IsInteger(x);
  return given < 0 && whole && dtype != DType::kInt64 ? static_cast<int32_t>(dtype) : given;
}

void WriteReduction(ProgramWriter& writer, const OpDesc& op) {
  const std::string name = op.type().substr(std::string("reduce_").size());
  Longs axes;
  if (!writer.Get<bool>(op, "reduce_all"))
    for (const int32_t axis : writer.Get<std::vector<int32_t>>(op, "dim")) axes.push_back(axis);
  const Json keep = AttrJson("keepdim", 'b', writer.Get<bool>(op, "keep_dim"));
  std::vector<int64_t> operands = {writer.Operand(op, "X")};
  std::vector<Json> attrs;
  const DType x = writer.TypeOfSlot(op, "X").dtype, out = writer.TypeOfSlot(op, "Out").dtype;
  if (name == "mean" || name == "all" || name == "any") {
    attrs.push_back(AttrJson("axis", name == "mean" ? 'A' : 'L', axes));
  } else {
    operands.push_back(writer.Numbers(op, axes));
  }
  if (name == "sum") attrs.push_back(AttrJson("dtype", 't', SumType(writer, op)));
  if (name == "prod" && !IsFloating(x) && out != DType::kInt64)
    writer.Refuse(op, fmt::format("a product of {} is int64 in Paddle 3", ToString(x)));
  attrs.push_back(keep);
  if (name == "prod") attrs.push_back(AttrJson("reduce_all", 'b', axes.empty()));
  writer.Emit(op, "1." + name, std::move(operands), {"Out"}, std::move(attrs));
}

// --- others ---

void WriteRange(ProgramWriter& writer, const OpDesc& op) {
  const bool line = op.type() == "linspace";
  std::vector<int64_t> operands;
  for (const char* slot : {"Start", line ? "Stop" : "End", line ? "Num" : "Step"})
    operands.push_back(writer.Operand(op, slot));
  writer.Emit(op, line ? "1.linspace" : "1.arange", std::move(operands), {"Out"},
              {DTypeAttr(writer.TypeOfSlot(op, "Out").dtype), PlaceAttr()});
}

void WriteDeformableConv(ProgramWriter& writer, const OpDesc& op) {
  const bool mask = op.type() == "deformable_conv";
  std::vector<Json> attrs;
  for (const DialectAttr& attr : AttrsOf("deformable_conv"))
    attrs.push_back(AttrJson(attr.name, attr.type, writer.AttrOf(op, attr.name)));
  writer.Emit(op, "1.deformable_conv",
              {writer.Operand(op, "Input"), writer.Operand(op, "Offset"),
               writer.Operand(op, "Filter"), mask ? writer.Operand(op, "Mask") : 0},
              {"Output"}, std::move(attrs));
}

void WriteAttention(ProgramWriter& writer, const OpDesc& op) {
  const Type q = writer.TypeOfSlot(op, "Q");
  const int rank = q.shape.rank();
  const int64_t columns = rank > 0 ? q.shape[rank - 1] : -1;
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(columns)));
  if (writer.Get<std::string>(op, "layout") != "BSHD" || rank != 4 || columns < 1 ||
      writer.Get<float>(op, "scale") != scale || writer.Get<bool>(op, "fix_seed") ||
      writer.Get<std::string>(op, "dropout_implementation") != "upscale_in_train") {
    writer.Refuse(op,
                  "Paddle 3 has attention with the layout BSHD, the scale 1 / sqrt(columns) "
                  "and random draws of its own");
  }
  writer.Emit(op, "1.flash_attn",
              {writer.Operand(op, "Q"), writer.Operand(op, "K"), writer.Operand(op, "V"), 0,
               writer.Operand(op, "Mask")},
              {"Out", "", "", ""},
              {AttrJson("dropout", 'f', writer.AttrOf(op, "dropout_prob")),
               AttrJson("causal", 'b', writer.AttrOf(op, "is_causal")),
               AttrJson("return_softmax", 'b', false),
               AttrJson("is_test", 'b', writer.AttrOf(op, "is_test")),
               AttrJson("rng_name", 's', std::string())});
}

using WriteFn = void (*)(ProgramWriter&, const OpDesc&);

const std::unordered_map<std::string, WriteFn>& Functions() {
  static const std::unordered_map<std::string, WriteFn> functions = {
      {"fill_constant", WriteFill},
      {"assign_value", WriteValues},
      {"reduce_sum", WriteReduction},
      {"reduce_mean", WriteReduction},
      {"reduce_max", WriteReduction},
      {"reduce_min", WriteReduction},
      {"reduce_prod", WriteReduction},
      {"reduce_all", WriteReduction},
      {"reduce_any", WriteReduction},
      {"range", WriteRange},
      {"linspace", WriteRange},
      {"deformable_conv", WriteDeformableConv},
      {"deformable_conv_v1", WriteDeformableConv},
      {"scaled_dot_product_attention", WriteAttention},
  };
  return functions;
}

int RankOf(const ProgramWriter& writer, const OpDesc& op, const char* slot) {
  return writer.TypeOfSlot(op, slot).shape.rank();
}

}  // namespace

bool WriteSpecial(ProgramWriter& writer, const OpDesc& op) {
  const auto found = Functions().find(op.type());
  if (found == Functions().end()) return false;
  found->second(writer, op);
  return true;
}

bool GivesRank0(const ProgramWriter& writer, const OpDesc& op, const std::string& slot) {
  const std::string& type = op.type();
  static const std::unordered_map<std::string, int> always = {
      {"mean", 0},     {"squared_l2_norm", 0}, {"size", 0},
      {"is_empty", 0}, {"allclose", 0},        {"equal_all", 0},
      {"dist", 0},     {"l1_norm", 0},         {"accuracy", 0}};
  if (always.count(type) > 0) return true;
  if (type.starts_with("reduce_"))
    return !writer.Get<bool>(op, "keep_dim") && ReducesAll(writer, op);
  if (type == "frobenius_norm") return !writer.Get<bool>(op, "keep_dim") && ReducesAll(writer, op);
  if (type == "logsumexp") {
    const auto axes = writer.Get<std::vector<int32_t>>(op, "axis");
    const bool all = writer.Get<bool>(op, "reduce_all") ||
                     static_cast<int>(axes.size()) == RankOf(writer, op, "X");
    return !writer.Get<bool>(op, "keepdim") && all;
  }
  if (type == "p_norm")
    return !writer.Get<bool>(op, "keepdim") &&
           (writer.Get<bool>(op, "asvector") || RankOf(writer, op, "X") == 1);
  if (type == "arg_max" || type == "arg_min")
    return !writer.Get<bool>(op, "keepdims") &&
           (writer.Get<bool>(op, "flatten") || RankOf(writer, op, "X") == 1);
  if (type == "slice")
    return static_cast<int>(writer.Get<std::vector<int32_t>>(op, "decrease_axis").size()) ==
           RankOf(writer, op, "Input");
  if (type == "dot" || type == "matmul_v2")
    return RankOf(writer, op, "X") == 1 && RankOf(writer, op, "Y") == 1;
  if (type == "trace") return RankOf(writer, op, "Input") == 2;
  if (type == "nll_loss")
    return slot == "Total_weight" || writer.Get<std::string>(op, "reduction") != "none";
  return type == "kldiv_loss" && writer.Get<std::string>(op, "reduction") != "none";
}

}  // namespace coracle::pir
