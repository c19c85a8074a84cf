// Matrix products.
#include <coracle/convert/onnx/export/activation.h>
#include <coracle/convert/onnx/export/rows.h>

namespace coracle::onnx {
namespace {

// ONNX's MatMul treats vectors like Paddle, except that two vectors give a scalar.
Value Product(OpContext& op, const Value& x, const Value& y, bool vectors) {
  const Value product = op.Node("MatMul", {x, y});
  return vectors ? op.Reshape(product, {1}) : product;
}

void ExportMatmulV2(OpContext& op) {
  const int rx = op.Rank("X"), ry = op.Rank("Y");
  const Value x = op.Attr<bool>("trans_x") ? op.SwapLast(op.In("X"), rx) : op.In("X");
  const Value y = op.Attr<bool>("trans_y") ? op.SwapLast(op.In("Y"), ry) : op.In("Y");
  op.Out("Out", Product(op, x, y, rx == 1 && ry == 1));
}

// A transposed vector X is a column, a transposed Y a row.
void ExportMatmul(OpContext& op) {
  op.Require(op.Attr<int32_t>("head_number") == 1, "head_number has no counterpart");
  const bool tx = op.Attr<bool>("transpose_X"), ty = op.Attr<bool>("transpose_Y");
  const int rx = op.Rank("X"), ry = op.Rank("Y");
  op.Require((rx > 1 || !tx) && (ry > 1 || !ty), "a transposed vector has no counterpart");
  const Value x = tx ? op.SwapLast(op.In("X"), rx) : op.In("X");
  const Value y = ty ? op.SwapLast(op.In("Y"), ry) : op.In("Y");
  Value product = Product(op, x, y, rx == 1 && ry == 1);
  const float alpha = op.Attr<float>("alpha");
  if (alpha != 1) product = op.Node("Mul", {product, op.Scalar(alpha, op.InType("X"))});
  op.Out("Out", product);
}

// A tensor as a matrix whose rows are its first dims.
Value AsMatrix(OpContext& op, const Value& value, int rank, int rows) {
  if (rank == 2 && rows == 1) return value;
  return op.Node("Flatten", {value}, {{"axis", rows}});
}

// The known dims of `shape`; unknown ones are taken from `value`.
Value Dims(OpContext& op, const Value& value, const Shape& shape, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    if (shape[i] < 0) return op.DimsOf(value, begin, end);
  }
  return op.IntList(Ints(shape.begin() + begin, shape.begin() + end));
}

void ExportMul(OpContext& op) {
  const int rx = op.Rank("X"), ry = op.Rank("Y");
  const int x_rows = op.Attr<int32_t>("x_num_col_dims"),
            y_rows = op.Attr<int32_t>("y_num_col_dims");
  const Value x = op.In("X"), y = op.In("Y");
  // MatMul supports leading dims of X.
  const bool plain = x_rows == rx - 1 && ry == 2 && y_rows == 1;
  Value product =
      op.Node("MatMul", {plain ? x : AsMatrix(op, x, rx, x_rows), AsMatrix(op, y, ry, y_rows)});
  if (!plain && (x_rows > 1 || ry - y_rows > 1)) {
    const Value dims = op.Concat(
        {Dims(op, x, op.InShape("X"), 0, x_rows), Dims(op, y, op.InShape("Y"), y_rows, ry)}, 0);
    product = op.ReshapeExactly(product, dims);
  }
  op.Out("Out", product);
}

void ExportFc(OpContext& op) {
  op.Require(!op.Attr<bool>("padding_weights"), "padding_weights has no counterpart");
  const int rank = op.Rank("Input");
  const auto rows = static_cast<int>(op.Axis(op.Attr<int32_t>("in_num_col_dims"), rank));
  const Value x = op.In("Input"), w = op.Cast(op.In("W"), op.InType("W"), op.InType("Input"));
  const bool plain = rows == rank - 1;
  Value sums = op.Node("MatMul", {plain ? x : AsMatrix(op, x, rank, rows), w});
  if (!plain && rows > 1) {
    const Value dims = op.Concat(
        {Dims(op, x, op.InShape("Input"), 0, rows), Dims(op, w, op.InShape("W"), 1, 2)}, 0);
    sums = op.ReshapeExactly(sums, dims);
  }
  if (op.Has("Bias")) sums = op.Node("Add", {sums, op.Reshape(op.In("Bias"), {-1})});
  op.Out("Z", sums);
  const auto act = op.Attr<std::string>("activation_type");
  const AttrList attrs = act == "gelu_tanh" ? AttrList{{"approximate", true}} : AttrList{};
  if (!act.empty())
    sums = Activate(op, act == "gelu_tanh" ? "gelu" : act, attrs, sums, op.InType("Input"));
  op.Out("Out", sums);
}

void ExportBmm(OpContext& op) { op.Out("Out", op.Node("MatMul", {op.In("X"), op.In("Y")})); }
void ExportMv(OpContext& op) { op.Out("Out", op.Node("MatMul", {op.In("X"), op.In("Vec")})); }

void ExportDot(OpContext& op) {
  const Value products = op.Node("Mul", {op.In("X"), op.In("Y")});
  op.Out("Out", op.Reduce("ReduceSum", products, {op.Rank("X") - 1}, true));
}

void ExportAddmm(OpContext& op) {
  const DType dtype = op.InType("X");
  const auto times = [&](const Value& value, float factor) {
    return factor == 1 ? value : op.Node("Mul", {value, op.Scalar(factor, dtype)});
  };
  const Value product = times(op.Node("MatMul", {op.In("X"), op.In("Y")}), op.Attr<float>("Alpha"));
  op.Out("Out", op.Node("Add", {times(op.In("Input"), op.Attr<float>("Beta")), product}));
}

constexpr ExportRow kRows[] = {
    {"addmm", ExportAddmm, "MatMul, Mul, Add"},
    {"bmm", ExportBmm, "MatMul"},
    {"dot", ExportDot, "Mul, ReduceSum"},
    {"fc", ExportFc, "MatMul, Add, and the activation"},
    {"matmul", ExportMatmul, "MatMul, Transpose, Mul"},
    {"matmul_v2", ExportMatmulV2, "MatMul, Transpose; MatMulInteger or QLinearMatMul of integers"},
    {"mul", ExportMul, "MatMul, Flatten, Reshape"},
    {"mv", ExportMv, "MatMul"},
};

}  // namespace

ExportRows MatmulRows() { return kRows; }

}  // namespace coracle::onnx
