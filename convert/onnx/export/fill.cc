// Ops that create tensors, and ops on a tensor's type and shape.
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/operators/operators.h>

namespace coracle::onnx {
namespace {

// Largest number of elements of a constant in the model.
constexpr int64_t kSmall = 1024;

// The result of an op without inputs.
Tensor Evaluated(const OpDesc& op, const char* slot) {
  VarValues values;
  InterpretOp(op, DefaultOps(), values);
  return std::get<Tensor>(values.at(op.Output(slot)[0]));
}

// One element as computed by fill_constant and similar ops from their attrs.
Tensor Element(OpContext& op, DType dtype) {
  AttrList attrs = {{"dtype", static_cast<int32_t>(dtype)}, {"shape", std::vector<int64_t>{1}}};
  for (const NamedAttr& attr : op.op().attrs()) {
    if (attr.name == "value" || attr.name == "str_value") attrs.push_back(attr);
  }
  const OpDesc one("fill_constant", {}, {{"Out", {"element"}}}, attrs);
  return Evaluated(one, "Out");
}

Value Filled(OpContext& op, const Value& dims, const Tensor& element) {
  return op.Node("ConstantOfShape", {dims}, {{"value", element}});
}

void ExportFillConstant(OpContext& op) {
  const bool given = op.GivenByTensors("ShapeTensorList", "ShapeTensor");
  const Shape& shape = op.OutShape("Out");
  const DType dtype = op.OutType("Out");
  if (op.Has("ValueTensor")) {
    const Value dims = op.IntsFrom("ShapeTensorList", "ShapeTensor", "shape");
    return op.Out("Out", op.Node("Expand", {op.AsScalar(op.In("ValueTensor")), dims}));
  }
  if (!given && shape.numel() <= kSmall)
    return op.Out("Out", op.Constant(Evaluated(op.op(), "Out")));
  op.Out("Out",
         Filled(op, op.IntsFrom("ShapeTensorList", "ShapeTensor", "shape"), Element(op, dtype)));
}

void ExportEmpty(OpContext& op) {
  const Value dims = op.IntsFrom("ShapeTensorList", "ShapeTensor", "shape");
  op.Out("Out", Filled(op, dims, Tensor::Zeros(op.OutType("Out"), {1})));
}

void ExportFillBatchSizeLike(OpContext& op) {
  op.Require(op.Meta("Input").lod_level == 0, "LoD has no counterpart");
  const Ints shape = op.IntsAttr("shape");
  const auto at = static_cast<size_t>(op.Attr<int32_t>("output_dim_idx"));
  const int64_t axis = op.Axis(op.Attr<int32_t>("input_dim_idx"), op.Rank("Input"));
  Values dims;
  const auto begin = shape.begin(), middle = begin + static_cast<int64_t>(at);
  if (at > 0) dims.push_back(op.IntList(Ints(begin, middle)));
  dims.push_back(op.DimsOf(op.In("Input"), axis, axis + 1));
  if (at + 1 < shape.size()) dims.push_back(op.IntList(Ints(middle + 1, shape.end())));
  op.Out("Out", Filled(op, op.Concat(dims, 0), Element(op, op.OutType("Out"))));
}

void ExportFillAnyLike(OpContext& op) {
  op.Out("Out", Filled(op, op.ShapeOf(op.In("X")), Element(op, op.OutType("Out"))));
}

void ExportFillZerosLike(OpContext& op) {
  const Value zeros = Filled(op, op.ShapeOf(op.In("X")), Tensor::Zeros(op.OutType("Out"), {1}));
  op.exporter().graph().SetMaker(zeros, "fill_zeros_like", {op.In("X")});
  op.Out("Out", zeros);
}

void ExportConstant(OpContext& op) { op.Out("Out", op.Constant(Evaluated(op.op(), "Out"))); }

void ExportEye(OpContext& op) {
  const Shape& shape = op.OutShape("Out");
  const Value zeros = Filled(op, op.IntList(shape.ToVector()), Tensor::Zeros(DType::kFloat32, {1}));
  op.Out("Out", op.Node("EyeLike", {zeros}, {{"dtype", ToDataType(op.OutType("Out"))}}));
}

void ExportRange(OpContext& op) {
  op.Out("Out", op.Node("Range", {op.AsScalar(op.In("Start")), op.AsScalar(op.In("End")),
                                  op.AsScalar(op.In("Step"))}));
}

// Start + i (Stop - Start) / (Num - 1).
void ExportLinspace(OpContext& op) {
  const DType dtype = op.OutType("Out");
  op.Require(IsFloating(dtype), "integers have no counterpart");
  const auto scalar = [&](const char* slot, DType to) {
    return op.Cast(op.AsScalar(op.In(slot)), op.InType(slot), to);
  };
  const Value start = scalar("Start", dtype), stop = scalar("Stop", dtype);
  const Value num = scalar("Num", DType::kInt64);
  const Value steps = op.Node("Max", {op.Node("Sub", {num, op.Int(1)}), op.Int(1)});
  const Value step =
      op.Node("Div", {op.Node("Sub", {stop, start}), op.Cast(steps, DType::kInt64, dtype)});
  const Value index = op.Cast(op.Node("Range", {op.Int(0), num, op.Int(1)}), DType::kInt64, dtype);
  op.Out("Out", op.Node("Add", {start, op.Node("Mul", {index, step})}));
}

// --- types and shapes ---

void ExportAssign(OpContext& op) { op.Out("Out", op.In("X")); }

// float64 holds these integers.
bool IsExactInFloat64(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kUInt8 || dtype == DType::kInt16 ||
         dtype == DType::kInt32;
}

void ExportCast(OpContext& op) {
  const Value x = op.In("X");
  const DType from = op.InType("X"), to = op.OutType("Out");
  if (from == DType::kFloat64 && IsExactInFloat64(to)) {
    const Graph& graph = op.exporter().graph();
    const Values before = graph.InputsOf(x, "Cast");
    if (!before.empty() && graph.TypeOf(before[0]) == to) return op.Out("Out", before[0]);
  }
  op.Out("Out", op.Cast(x, from, to));
}

void ExportShape(OpContext& op) {
  op.Out("Out", op.Cast(op.ShapeOf(op.In("Input")), DType::kInt64, op.OutType("Out")));
}
Value NumberOfElements(OpContext& op, const char* slot) {
  return op.Reshape(op.Node("Size", {op.In(slot)}), {1});
}
void ExportSize(OpContext& op) { op.Out("Out", NumberOfElements(op, "Input")); }
void ExportIsEmpty(OpContext& op) {
  op.Out("Out", op.Node("Equal", {NumberOfElements(op, "X"), op.Int(0)}));
}

void ExportDropout(OpContext& op) {
  op.Require(op.Attr<bool>("is_test"),
             std::string("it drops elements, as in training. ") + kInferenceOnly);
  op.Ignore("Seed");
  Value x = op.In("X");
  const float p = op.Attr<float>("dropout_prob");
  if (op.Attr<std::string>("dropout_implementation") == "downgrade_in_infer" && p != 0)
    x = op.Node("Mul", {x, op.Scalar(1.0f - p, op.InType("X"))});
  op.Out("Out", x);
}

constexpr ExportRow kRows[] = {
    {"assign", ExportAssign, "no node"},
    {"assign_value", ExportConstant, "an initializer"},
    {"cast", ExportCast, "Cast; QLinearConv and other quantized ops"},
    {"dropout", ExportDropout, "no node; Mul for downgrade_in_infer"},
    {"empty", ExportEmpty, "ConstantOfShape"},
    {"eye", ExportEye, "EyeLike"},
    {"fill", ExportConstant, "an initializer"},
    {"fill_any_like", ExportFillAnyLike, "Shape, ConstantOfShape"},
    {"fill_constant", ExportFillConstant, "an initializer, ConstantOfShape or Expand"},
    {"fill_constant_batch_size_like", ExportFillBatchSizeLike, "Shape, ConstantOfShape"},
    {"fill_zeros_like", ExportFillZerosLike, "Shape, ConstantOfShape"},
    {"fill_zeros_like2", ExportFillZerosLike, "Shape, ConstantOfShape"},
    {"is_empty", ExportIsEmpty, "Size, Equal"},
    {"linspace", ExportLinspace, "Range, Mul, Add"},
    {"range", ExportRange, "Range"},
    {"rnn_memory_helper", ExportAssign, "no node"},
    {"shape", ExportShape, "Shape, Cast"},
    {"size", ExportSize, "Size"},
};

}  // namespace

ExportRows FillRows() { return kRows; }

}  // namespace coracle::onnx
