// Values that are known without a run, and values passed through: Constant, Identity, Shape, casts.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/casts.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::onnx {
namespace {

void ImportConstant(NodeContext& node) {
  Attributes& attrs = node.attributes();
  if (const auto* proto = attrs.Tensor("value")) {
    Tensor tensor = ParseTensorProto(*proto, node.graph().state().tensors);
    const bool scalar = tensor.shape().rank() == 0;
    if (scalar) tensor = tensor.Reshaped({1});
    return node.SetValue(
        0, {.constant = std::move(tensor), .data_type = proto->data_type(), .scalar = scalar});
  }
  if (const auto value = attrs.Int("value_int"))
    return node.SetConstant(0, Tensor::Full<int64_t>({1}, *value), true);
  if (const auto value = attrs.Float("value_float"))
    return node.SetConstant(0, Tensor::Full<float>({1}, *value), true);
  if (const auto values = attrs.Ints("value_ints"))
    return node.SetConstant(0,
                            Tensor::Of<int64_t>({static_cast<int64_t>(values->size())}, *values));
  if (const auto values = attrs.Floats("value_floats"))
    return node.SetConstant(0, Tensor::Of<float>({static_cast<int64_t>(values->size())}, *values));
  if (const auto text = attrs.String("value_string"))
    return node.SetConstant(0, Tensor::OfStrings({1}, {{*text}}), true);
  if (const auto texts = attrs.Strings("value_strings"))
    return node.SetConstant(0, Tensor::OfStrings({static_cast<int64_t>(texts->size())}, *texts));
  if (node.HasAttr("sparse_value"))
    node.Refuse("attribute sparse_value: only dense tensors have a counterpart");
  node.Require(false, "the node has no value");
}

void ImportIdentity(NodeContext& node) { node.SetSame(0, 0); }

// --- shapes ---

// The range [start, end) of dims chosen by Shape's attributes.
std::pair<int64_t, int64_t> ShapeRange(NodeContext& node) {
  const int64_t rank = node.rank(0);
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  if (node.opset() < 15) return {0, rank};
  const int64_t start = clamp(node.Int("start", 0)), end = clamp(node.Int("end", rank));
  return {start, std::max(start, end)};
}

void ImportShape(NodeContext& node) {
  const auto [start, end] = ShapeRange(node);
  const Shape shape = node.shape(0);
  std::vector<int64_t> dims(shape.begin() + start, shape.begin() + end);
  if (std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim >= 0; }))
    return node.SetConstant(0, Tensor::Of<int64_t>({end - start}, dims));
  Variable all = node.Make("shape", {{"Input", {node.In(0).name()}}});
  if (end - start < shape.rank()) {
    all = node.Make("slice", {{"Input", {all.name()}}},
                    {{"axes", std::vector<int32_t>{0}},
                     {"starts", std::vector<int32_t>{ToInt32(start, "the start of a slice")}},
                     {"ends", std::vector<int32_t>{ToInt32(end, "the end of a slice")}}});
  }
  node.Set(0, node.Cast(all, DType::kInt64));
}

void ImportSize(NodeContext& node) {
  const Shape shape = node.shape(0);
  if (shape.IsKnown()) return node.SetConstant(0, Tensor::Full<int64_t>({1}, shape.numel()), true);
  node.Set(0, node.Make("size", {{"Input", {node.In(0).name()}}}), true);
}

// --- casts ---

// Converts integers to a type that has fewer bits than its dtype: keeps their low bits. Floats and
// texts are truncated to integers first.
Variable LowBits(NodeContext& node, const Variable& x, int data_type) {
  using proto::onnx::TensorProto;
  const auto number = [&](double value) { return node.ScalarVar(DType::kInt64, value); };
  const int bits = IsSmall(data_type)                 ? SmallBits(data_type)
                   : data_type == TensorProto::UINT16 ? 16
                                                      : 32;
  const Variable wide = ExactCast(node, x, DType::kInt64);
  const Variable low = node.Binary("bitwise_and", wide, number(std::exp2(bits) - 1));
  if (!IsSmallSigned(data_type)) return low;
  const Variable sign = number(std::exp2(bits - 1));
  return node.Binary("bitwise_xor", low, sign) - sign;
}

// Casts x to ONNX's type `data_type`, whose range may be narrower than the dtype's.
void SetCast(NodeContext& node, int data_type) {
  const std::optional<DType> dtype = HoldingDType(data_type);
  if (!dtype)
    node.Refuse(fmt::format("a cast to {}, which no dtype holds", DataTypeName(data_type)));
  const bool saturate = node.Flag("saturate", true);
  const std::string mode = node.OneOf("round_mode", "up", {"up", "down", "nearest"});
  if (node.InValue(0).data_type == data_type) return node.SetSame(0, 0);
  Variable x = node.In(0);
  if (const std::string format = FloatFormat(data_type); !format.empty())
    x = RoundedToFormat(node, x, data_type, saturate, mode);
  else if (IsHeldWider(data_type))
    x = LowBits(node, x, data_type);
  node.SetValue(
      0, {.var = ExactCast(node, x, *dtype), .data_type = data_type, .scalar = node.IsScalar(0)});
}

// Up to operator set 5, the type is a name.
int TypeAttr(NodeContext& node) {
  if (node.opset() >= 6) return node.Int32("to");
  const std::string name = node.String("to", "");
  auto type = proto::onnx::TensorProto::UNDEFINED;
  node.Require(proto::onnx::TensorProto::DataType_Parse(name, &type),
               fmt::format("attribute to names no type, got {}", Quote(name)));
  return type;
}

void ImportCast(NodeContext& node) { SetCast(node, TypeAttr(node)); }

void ImportCastLike(NodeContext& node) { SetCast(node, node.InValue(1).data_type); }

// --- bits ---

int BitsOf(NodeContext& node, int data_type) {
  using proto::onnx::TensorProto;
  const std::optional<DType> dtype = HoldingDType(data_type);
  if (!dtype || !FloatFormat(data_type).empty() || *dtype == DType::kString)
    node.Refuse(fmt::format("the bits of {}, which no dtype holds", DataTypeName(data_type)));
  if (IsSmall(data_type)) return SmallBits(data_type);
  if (data_type == TensorProto::UINT16) return 16;
  if (data_type == TensorProto::UINT32) return 32;
  return 8 * static_cast<int>(SizeOf(*dtype));
}

Variable ViewAs(NodeContext& node, const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return node.Unary("view_dtype", x, {{"dtype", static_cast<int32_t>(dtype)}});
}

// The bits of the input as signed integers of 8 bits or more.
Variable SignedBits(NodeContext& node, int bits) {
  const DType dtype = bits <= 8    ? DType::kInt8
                      : bits == 16 ? DType::kInt16
                      : bits == 32 ? DType::kInt32
                                   : DType::kInt64;
  const int data_type = node.InValue(0).data_type;
  if (!IsHeldWider(data_type)) return ViewAs(node, node.In(0), dtype);
  const Variable sign = node.ScalarVar(DType::kInt64, std::exp2(bits - 1));
  const Variable low = LowBits(node, node.In(0), data_type);
  if (IsSmallSigned(data_type)) return ExactCast(node, low, dtype);
  return ExactCast(node, node.Binary("bitwise_xor", low, sign) - sign, dtype);
}

// The same bits as an element of another type. Types that a wider dtype holds go through integers.
void ImportBitCast(NodeContext& node) {
  const int from = node.InValue(0).data_type, to = node.Int32("to");
  const int bits = BitsOf(node, from);
  node.Require(bits == BitsOf(node, to), fmt::format("{} and {} have different numbers of bits",
                                                     DataTypeName(from), DataTypeName(to)));
  if (from == to) return node.SetSame(0, 0);
  const DType dtype = *HoldingDType(to);
  const bool plain = !IsHeldWider(from) && !IsHeldWider(to);
  Variable y = plain ? ViewAs(node, node.In(0), dtype) : SignedBits(node, bits);
  if (IsHeldWider(to)) y = ExactCast(node, LowBits(node, y, to), dtype);
  if (!plain && !IsHeldWider(to)) y = ViewAs(node, y, dtype);
  node.SetValue(0, {.var = y, .data_type = to, .scalar = node.IsScalar(0)});
}

}  // namespace

Variable ExactCast(NodeContext& node, const Variable& x, DType dtype) {
  return x.dtype() == dtype ? x : node.Unary("cast", x, CastAttrs(x.dtype(), dtype));
}

Variable RoundedToFormat(NodeContext& node, const Variable& x, int data_type, bool saturate,
                         const std::string& mode) {
  const DType own = x.dtype();
  // 16-bit floats are computed in float32 anyway; integers and texts may need more.
  const DType dtype = IsFloating(own) ? (IsHalf(own) ? DType::kFloat32 : own) : DType::kFloat64;
  const Variable rounded = node.Unary(
      "round_to_format", ExactCast(node, x, dtype),
      {{"format", FloatFormat(data_type)}, {"saturate", saturate}, {"round_mode", mode}});
  return ExactCast(node, rounded, *HoldingDType(data_type));
}

void AddConstantImporters(NodeImporters& importers) {
  constexpr auto kMoves = Unsigned::kMoves;
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
           {.op_type = "Constant",
         .since = 1,
         .takes = "",
         .import = ImportConstant,
         .maps_to = "a constant"},
           {.op_type = "Identity",
           .since = 1,
           .takes = "V",
           .import = ImportIdentity,
           .maps_to = "nothing",
           .unsigneds = kMoves},
           {.op_type = "Shape",
           .since = 1,
           .takes = "T",
           .import = ImportShape,
           .maps_to = "a constant; shape, slice, cast",
           .unsigneds = kMoves},
           {.op_type = "Size",
           .since = 1,
           .takes = "T",
           .import = ImportSize,
           .maps_to = "a constant; size",
           .unsigneds = kMoves},
           {.op_type = "Cast",
           .since = 1,
           .takes = "T",
           .import = ImportCast,
           .maps_to = "cast",
           .unsigneds = kMoves},
           {.op_type = "CastLike",
           .since = 15,
           .takes = "T T",
           .import = ImportCastLike,
           .maps_to = "cast",
           .unsigneds = kMoves},
           {.op_type = "BitCast",
           .since = 26,
           .takes = "T",
           .import = ImportBitCast,
           .maps_to = "view_dtype; bitwise_and",
           .unsigneds = kMoves},
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
