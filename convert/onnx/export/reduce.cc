// Reductions, searches and sums along axes.
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>

#include <cmath>
#include <limits>

namespace coracle::onnx {
namespace {

constexpr char kSum[] = "ReduceSum", kMax[] = "ReduceMax", kMin[] = "ReduceMin",
               kProd[] = "ReduceProd", kSquares[] = "ReduceSumSquare", kL1[] = "ReduceL1",
               kMean[] = "ReduceMean", kArgMax[] = "ArgMax", kArgMin[] = "ArgMin";

// The axes that an op reduces; none: all of them.
Ints AxesOf(OpContext& op, const char* attr, const char* all_attr, int rank) {
  Ints axes = op.IntsAttr(attr);
  if (op.Attr<bool>(all_attr) || axes.empty()) {
    axes.clear();
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  for (int64_t& axis : axes) axis = op.Axis(axis, rank);
  return axes;
}

// Paddle gives [1] where ONNX gives a scalar.
Value Reduced(OpContext& op, const char* type, const Value& x, const Ints& axes, bool keep,
              int rank) {
  if (rank == 0) return op.Reshape(x, {1});
  const Value reduced = op.Reduce(type, x, axes, keep);
  if (keep || axes.size() != static_cast<size_t>(rank)) return reduced;
  const Value whole = op.Reshape(reduced, {1});
  op.exporter().graph().SetMaker(whole, std::string("whole ") + type, {x});
  return whole;
}

template <const char* kType>
void ExportReduce(OpContext& op) {
  const int rank = op.Rank("X");
  const DType in = op.InType("X"), out = op.OutType("Out");
  const Ints axes = AxesOf(op, "dim", "reduce_all", rank);
  const bool keep = op.Attr<bool>("keep_dim");
  // ONNX reduces only numbers; bools are all true if the minimum is 1. Integers are summed
  // in int64.
  const bool sums = kType == kSum || kType == kProd;
  const DType inner = IsFloating(in)       ? in
                      : sums               ? DType::kInt64
                      : in == DType::kBool ? DType::kInt32
                                           : in;
  const Value x = op.Cast(op.In("X"), in, inner);
  op.Out("Out", op.Cast(Reduced(op, kType, x, axes, keep, rank), inner, out));
}

void ExportMean(OpContext& op) {
  const Ints axes = AxesOf(op, "dim", "reduce_all", op.Rank("X"));
  op.Require(IsFloating(op.InType("X")), "the mean of integers has no counterpart");
  const Value mean =
      Reduced(op, "ReduceMean", op.In("X"), axes, op.Attr<bool>("keep_dim"), op.Rank("X"));
  op.Out("Out", op.Cast(mean, op.InType("X"), op.OutType("Out")));
}

// Reduces all elements to [1].
template <const char* kType>
void ExportWhole(OpContext& op) {
  op.Out("Out", op.Reduce(kType, op.Reshape(op.In("X"), {-1}), {0}, true));
}

void ExportLogSumExp(OpContext& op) {
  const int rank = op.Rank("X");
  const Ints axes = AxesOf(op, "axis", "reduce_all", rank);
  op.Out("Out", Reduced(op, "ReduceLogSumExp", op.In("X"), axes, op.Attr<bool>("keepdim"), rank));
}

// (sum |X|^p)^(1 / p), and its limits.
void ExportPNorm(OpContext& op) {
  const int rank = op.Rank("X");
  const DType dtype = op.InType("X");
  const float p = op.Attr<float>("porder");
  const bool keep = op.Attr<bool>("keepdim"), all = op.Attr<bool>("asvector");
  const Value x = op.In("X");
  Ints axes = {op.Axis(op.Attr<int32_t>("axis"), rank)};
  if (all) {
    axes.clear();
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  const auto reduce = [&](const char* type, const Value& v) {
    return Reduced(op, type, v, axes, keep, rank);
  };
  Value norm;
  if (p == 1 || p == 2) {
    norm = reduce(p == 1 ? "ReduceL1" : "ReduceL2", x);
  } else if (std::isinf(p)) {
    norm = reduce(p > 0 ? "ReduceMax" : "ReduceMin", op.Node("Abs", {x}));
  } else if (p == 0) {
    const Value zero = op.Node("Equal", {x, op.Scalar(0, dtype)});
    norm = reduce("ReduceSum", op.Cast(op.Node("Not", {zero}), DType::kBool, dtype));
  } else {
    const Value powers = op.Node("Pow", {op.Node("Abs", {x}), op.Scalar(p, dtype)});
    norm = op.Node("Pow", {reduce("ReduceSum", powers), op.Scalar(1.0 / p, dtype)});
  }
  op.Out("Out", norm);
}

template <const char* kType>
void ExportArg(OpContext& op) {
  const bool flat = op.Attr<bool>("flatten"), keep = op.Attr<bool>("keepdims");
  const int rank = op.Rank("X");
  const Value x = flat ? op.Reshape(op.In("X"), {-1}) : op.In("X");
  const int64_t axis = flat ? 0 : op.Attr<int64_t>("axis");
  Value found = op.Node(kType, {x}, {{"axis", axis}, {"keepdims", keep || flat}});
  const Shape& out = op.OutShape("Out");
  if (flat) found = op.Reshape(found, Ints(static_cast<size_t>(out.rank()), 1));
  if (!flat && !keep && rank == 1) found = op.Reshape(found, {1});
  op.Out("Out", op.Cast(found, DType::kInt64, op.OutType("Out")));
}

// The best k along the axis, best first.
void TopK(OpContext& op, int64_t axis, bool largest, const Value& k) {
  const Values best =
      op.Nodes("TopK", {op.In("X"), k}, 2, {{"axis", axis}, {"largest", largest}, {"sorted", 1}});
  op.Out("Out", best[0]);
  op.Out("Indices", op.Cast(best[1], DType::kInt64, op.OutType("Indices")));
}

Value NumberOfBest(OpContext& op) {
  if (!op.Has("K")) return op.IntList({op.Attr<int32_t>("k")});
  return op.Reshape(op.Cast(op.In("K"), op.InType("K"), DType::kInt64), {1});
}
void ExportTopK(OpContext& op) { TopK(op, -1, true, NumberOfBest(op)); }
void ExportTopKV2(OpContext& op) {
  TopK(op, op.Attr<int32_t>("axis"), op.Attr<bool>("largest"), NumberOfBest(op));
}

void ExportArgsort(OpContext& op) {
  const Shape& x = op.InShape("X");
  const int64_t axis = op.Axis(op.Attr<int32_t>("axis"), x.rank());
  const int64_t size = x[static_cast<int>(axis)];
  const Value k = size >= 0 ? op.IntList({size}) : op.DimsOf(op.In("X"), axis, axis + 1);
  TopK(op, axis, op.Attr<bool>("descending"), k);
}

void ExportCumsum(OpContext& op) {
  const bool flat = op.Attr<bool>("flatten");
  const Value x = flat ? op.Reshape(op.In("X"), {-1}) : op.In("X");
  const bool late = !flat && op.Has("AxisTensor");
  const Value axis =
      late ? op.AsScalar(op.In("AxisTensor")) : op.Int(flat ? 0 : op.Attr<int32_t>("axis"));
  op.Out("Out", op.Node("CumSum", {x, axis},
                        {{"exclusive", op.Attr<bool>("exclusive")},
                         {"reverse", op.Attr<bool>("reverse")}}));
}

constexpr ExportRow kRows[] = {
    {"arg_max", ExportArg<kArgMax>, "ArgMax"},
    {"arg_min", ExportArg<kArgMin>, "ArgMin"},
    {"argsort", ExportArgsort, "TopK"},
    {"cumsum", ExportCumsum, "CumSum"},
    {"l1_norm", ExportWhole<kL1>, "ReduceL1"},
    {"logsumexp", ExportLogSumExp, "ReduceLogSumExp"},
    {"mean", ExportWhole<kMean>, "ReduceMean"},
    {"p_norm", ExportPNorm, "ReduceL1, ReduceL2, ReduceMax, ReduceMin, Pow"},
    {"reduce_all", ExportReduce<kMin>, "ReduceMin"},
    {"reduce_any", ExportReduce<kMax>, "ReduceMax"},
    {"reduce_max", ExportReduce<kMax>, "ReduceMax"},
    {"reduce_mean", ExportMean, "ReduceMean"},
    {"reduce_min", ExportReduce<kMin>, "ReduceMin"},
    {"reduce_prod", ExportReduce<kProd>, "ReduceProd"},
    {"reduce_sum", ExportReduce<kSum>, "ReduceSum"},
    {"squared_l2_norm", ExportWhole<kSquares>, "ReduceSumSquare"},
    {"top_k", ExportTopK, "TopK"},
    {"top_k_v2", ExportTopKV2, "TopK"},
};

}  // namespace

ExportRows ReduceRows() { return kRows; }

}  // namespace coracle::onnx
