// Values that are known without a run, and values passed through: Constant, Identity, Shape, Cast.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>

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
  for (const char* name : {"value_string", "value_strings", "sparse_value"}) {
    if (node.HasAttr(name))
      node.Refuse(
          fmt::format("attribute {}: only dense tensors of numbers have a counterpart", name));
  }
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

// Casts x to ONNX's type `data_type`, whose range may be narrower than the dtype's.
void SetCast(NodeContext& node, int data_type) {
  const std::optional<DType> dtype = FromDataType(data_type);
  if (!dtype)
    node.Refuse(fmt::format("a cast to {}, which no dtype holds", DataTypeName(data_type)));
  const int from = node.InValue(0).data_type;
  if (from == data_type) return node.SetSame(0, 0);
  Variable x = node.In(0);
  using proto::onnx::TensorProto;
  const bool narrows = data_type == TensorProto::UINT16 || data_type == TensorProto::UINT32;
  if (!narrows)
    return node.SetValue(
        0, {.var = node.Cast(x, *dtype), .data_type = data_type, .scalar = node.IsScalar(0)});
  // Converted through int64, whose low bits equal those of integers of any width.
  x = node.Cast(x, DType::kInt64);
  const double mask = data_type == TensorProto::UINT16 ? 65535.0 : 4294967295.0;
  x = node.Cast(node.Binary("bitwise_and", x, node.ScalarVar(DType::kInt64, mask)), *dtype);
  node.SetValue(0, {.var = x, .data_type = data_type, .scalar = node.IsScalar(0)});
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

void ImportCast(NodeContext& node) {
  // Both apply only to 8-bit floats.
  node.attributes().Ignore("saturate");
  node.attributes().Ignore("round_mode");
  SetCast(node, TypeAttr(node));
}

void ImportCastLike(NodeContext& node) {
  node.attributes().Ignore("saturate");
  node.attributes().Ignore("round_mode");
  SetCast(node, node.InValue(1).data_type);
}

}  // namespace

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
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
