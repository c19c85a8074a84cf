// Batches of sequences of different lengths, run step by step: sorted by length, so that at step t
// the first rows are those of the sequences that are longer than t.

#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/control/scalar_input.h>
#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace coracle {
namespace {

void RequireTable(const InferContext& ctx, std::string_view id) {
  const VarMeta& meta = ctx.Input("RankTable");
  ctx.Require(id, meta.type == VarType::kLoDRankTable, meta);
}

void RequireRows(const InferContext& ctx, std::string_view id, const char* slot) {
  ctx.Require(id, ctx.InputShape(slot).rank() >= 1, ctx.InputShape(slot));
}

const RankTable& TableAt(Workspace& ws, const TensorArg& arg) {
  const auto* table = std::get_if<RankTable>(&ws.ValueOf(arg));
  if (!table) ThrowInvalid("the rank table was not made");
  return *table;
}

// Of a table from outside it may be anything: no sum is larger than the largest number.
int64_t SumOfLengths(const RankTable& table) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t sum = 0;
  for (const RankTable::Item& item : table.items) sum += std::min(item.length, kMost - sum);
  return sum;
}

int64_t LongerThan(const RankTable& table, int64_t step) {
  auto end = std::partition_point(table.items.begin(), table.items.end(),
                                  [&](const RankTable::Item& item) { return item.length > step; });
  return end - table.items.begin();
}

Shape WithRows(Shape shape, int64_t rows) {
  shape[0] = rows;
  return shape;
}

size_t RowBytes(const Tensor& tensor) {
  return ByteSize(tensor.dtype(), {tensor.shape().Product(1, tensor.shape().rank())});
}

void CopyRow(const Tensor& from, int64_t i, Tensor* to, int64_t k) {
  const size_t bytes = RowBytes(from);
  if (bytes == 0) return;
  std::memcpy(static_cast<char*>(to->raw()) + static_cast<size_t>(k) * bytes,
              static_cast<const char*>(from.raw()) + static_cast<size_t>(i) * bytes, bytes);
}

// --- lod_rank_table ---

void InferTable(InferContext& ctx) {
  ctx.Require("C1", ctx.Attr<int32_t>("level") >= 0, ctx.Attr<int32_t>("level"));
  ctx.SetOutput("Out", VarMeta{VarType::kLoDRankTable, DType::kFloat32, {}, 0});
}

void FillTable(const LoD& lod, size_t level, RankTable* table) {
  table->items.clear();
  table->level = static_cast<int64_t>(level);
  table->coarser.assign(lod.begin(), lod.begin() + static_cast<ptrdiff_t>(level));
  const std::vector<uint64_t>& offsets = lod[level];
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    table->items.push_back(
        {static_cast<int64_t>(i), static_cast<int64_t>(offsets[i + 1] - offsets[i])});
  }
  std::stable_sort(
      table->items.begin(), table->items.end(),
      [](const RankTable::Item& a, const RankTable::Item& b) { return a.length > b.length; });
}

Kernel MakeTable(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const size_t level = static_cast<size_t>(ctx.Attr<int32_t>("level"));
  return [=](Workspace& ws) {
    const LoD& lod = ws.LodOf(x);
    if (level >= lod.size()) {
      ThrowInvalid(
          fmt::format("lod_rank_table: X has {} levels of LoD, level is {}; feed a tensor "
                      "with LoD",
                      lod.size(), level));
    }
    VarValue& value = ws.ValueOf(out);
    if (!std::holds_alternative<RankTable>(value)) value = RankTable();
    FillTable(lod, level, &std::get<RankTable>(value));
  };
}

// --- max_sequence_len ---

Kernel MaxLength(const PrepareContext& ctx) {
  const TensorArg table = ctx.Input("RankTable"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const RankTable& t = TableAt(ws, table);
    ws.Data<int64_t>(out)[0] = t.items.empty() ? 0 : t.items.front().length;
  };
}

// --- lod_tensor_to_array, array_to_lod_tensor ---

// The row of X at which each sequence of the table begins, in the table's order.
std::vector<int64_t> Begins(const RankTable& table) {
  std::vector<int64_t> lengths(table.items.size()), begins(table.items.size());
  for (const RankTable::Item& item : table.items)
    lengths[static_cast<size_t>(item.index)] = item.length;
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i];
    lengths[i] = at;
    at += length;
  }
  for (size_t k = 0; k < table.items.size(); ++k)
    begins[k] = lengths[static_cast<size_t>(table.items[k].index)];
  return begins;
}

void InferToArray(InferContext& ctx) {
  RequireTable(ctx, "C1");
  RequireRows(ctx, "C2", "X");
  VarMeta meta = ctx.Input("X");
  meta.type = VarType::kLoDTensorArray;
  meta.shape = ctx.exact() ? Shape{-1} : WithRows(meta.shape, -1);
  ctx.SetOutput("Out", meta);
}

Kernel ToArray(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), table = ctx.Input("RankTable"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const RankTable& t = TableAt(ws, table);
    const auto& tensor = std::get<Tensor>(ws.ValueOf(x));
    const int64_t rows = SumOfLengths(t);
    if (rows != tensor.shape()[0]) {
      ThrowInvalid(fmt::format("lod_tensor_to_array: X has {} rows, the sequences of RankTable {}",
                               tensor.shape()[0], rows));
    }
    VarValue& value = ws.ValueOf(out);
    if (!std::holds_alternative<TensorArray>(value)) value = TensorArray();
    auto& array = std::get<TensorArray>(value);
    array.clear();
    const std::vector<int64_t> begins = Begins(t);
    const int64_t steps = t.items.empty() ? 0 : t.items.front().length;
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t live = LongerThan(t, s);
      Tensor& element =
          array.Write(static_cast<size_t>(s), tensor.dtype(), WithRows(tensor.shape(), live));
      for (int64_t k = 0; k < live; ++k)
        CopyRow(tensor, begins[static_cast<size_t>(k)] + s, &element, k);
    }
  };
}

void ToArrayGradient(GradientContext& g) {
  g.Append("array_to_lod_tensor",
           {{"X", {g.OutputGrad("Out")}},
            {"RankTable", {g.Input("RankTable")}},
            {"Like", {g.Input("X")}}},
           {{"Out", {g.InputGrad("X")}}});
}

void InferFromArray(InferContext& ctx) {
  RequireTable(ctx, "C1");
  const VarMeta& array = ctx.Input("X");
  ctx.Require("C2", array.type == VarType::kLoDTensorArray, array);
  VarMeta meta{VarType::kLoDTensor, array.dtype, Shape{-1}, 1};
  if (ctx.HasInput("Like")) {
    meta = ctx.Input("Like");
  } else if (!ctx.exact()) {
    const VarMeta* declared = ctx.DeclaredOutput("Out");
    if (array.shape.rank() > 0)
      meta.shape = WithRows(array.shape, -1);
    else if (declared && declared->shape.rank() > 0)
      meta.shape = declared->shape;
  }
  ctx.SetOutput("Out", meta);
}

// The shape of one step's rows: Like's, or that of any element.
Shape RowShape(const TensorArray& array, const TensorArg& like, DType* dtype) {
  *dtype = like.dtype;
  if (like) return like.shape;
  for (size_t i = 0; i < array.size(); ++i) {
    if (!array.IsWritten(i) || array[i].shape().rank() == 0) continue;
    *dtype = array[i].dtype();
    return array[i].shape();
  }
  ThrowInvalid("array_to_lod_tensor: no element of X was written");
}

void CheckStep(const Tensor& element, int64_t step, int64_t live, const Tensor& out) {
  if (element.dtype() == out.dtype() && element.shape().rank() == out.shape().rank() &&
      element.shape()[0] == live && RowBytes(element) == RowBytes(out))
    return;
  ThrowInvalid(
      fmt::format("array_to_lod_tensor: element {} of X is {}; {} sequences are longer "
                  "than that, with rows as in {}",
                  step, element.ToString(), live, out.ToString()));
}

Kernel FromArray(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), table = ctx.Input("RankTable"), like = ctx.Input("Like"),
                  out = ctx.Output("Out");
  const std::string name = ctx.op().Output("Out")[0];
  return [=](Workspace& ws) {
    const RankTable& t = TableAt(ws, table);
    const auto& array = std::get<TensorArray>(ws.ValueOf(x));
    DType dtype = DType::kFloat32;
    const Shape row = RowShape(array, like, &dtype);
    const int64_t rows = SumOfLengths(t);
    if (like && (row.rank() == 0 || row[0] != rows)) {
      ThrowInvalid(
          fmt::format("array_to_lod_tensor: Like has the shape {}, the sequences of RankTable "
                      "have {} rows",
                      row.ToString(), rows));
    }
    Tensor& result = ResizeOutput(ws, out, dtype, WithRows(row, rows));
    if (!result.empty()) std::memset(result.raw(), 0, result.nbytes());
    const std::vector<int64_t> begins = Begins(t);
    for (size_t s = 0; s < array.size(); ++s) {
      if (!array.IsWritten(s)) continue;
      const int64_t live = LongerThan(t, static_cast<int64_t>(s));
      CheckStep(array[s], static_cast<int64_t>(s), live, result);
      for (int64_t k = 0; k < live; ++k)
        CopyRow(array[s], k, &result, begins[static_cast<size_t>(k)] + static_cast<int64_t>(s));
    }
    std::vector<uint64_t> offsets(t.items.size() + 1, 0);
    for (const RankTable::Item& item : t.items)
      offsets[static_cast<size_t>(item.index) + 1] = static_cast<uint64_t>(item.length);
    for (size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
    Tensor made = Tensor::View(dtype, result.shape(), nullptr);
    made.lod() = t.coarser;
    made.lod().push_back(std::move(offsets));
    CheckLod(name, made);  // a table from outside may tell of other levels
    ws.OutputLod(out) = std::move(made.lod());
  };
}

void FromArrayGradient(GradientContext& g) {
  g.Append("lod_tensor_to_array",
           {{"X", {g.OutputGrad("Out")}}, {"RankTable", {g.Input("RankTable")}}},
           {{"Out", {g.InputGrad("X")}}});
}

// --- shrink_rnn_memory ---

void InferShrink(InferContext& ctx) {
  RequireTable(ctx, "C1");
  RequireRows(ctx, "C2", "X");
  const VarMeta& index = ctx.Input("I");
  const bool one = !index.shape.IsKnown() || index.shape.numel() == 1;
  ctx.Require("C3", IsIndexType(index.dtype) && one, index);
  VarMeta meta = ctx.Input("X");
  meta.shape = WithRows(meta.shape, -1);
  ctx.SetOutput("Out", meta);
}

Kernel Shrink(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), table = ctx.Input("RankTable"), out = ctx.Output("Out");
  const IndexArg index(ctx, "I");
  return [=](Workspace& ws) {
    const int64_t live = LongerThan(TableAt(ws, table), static_cast<int64_t>(index(ws)));
    const auto& tensor = std::get<Tensor>(ws.ValueOf(x));
    if (live > tensor.shape()[0]) {
      ThrowInvalid(
          fmt::format("shrink_rnn_memory: X has {} rows, and {} sequences are longer than I",
                      tensor.shape()[0], live));
    }
    Tensor& result = ResizeOutput(ws, out, tensor.dtype(), WithRows(tensor.shape(), live));
    if (!result.empty()) std::memcpy(result.raw(), tensor.raw(), result.nbytes());
  };
}

void InferShrinkGrad(InferContext& ctx) {
  ctx.Require("C1", ctx.InputShape("X").rank() == ctx.InputShape("Out@GRAD").rank(),
              ctx.InputShape("X"), ctx.InputShape("Out@GRAD"));
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

Kernel ShrinkGrad(const PrepareContext& ctx) {
  const TensorArg grad = ctx.Input("Out@GRAD"), out = ctx.Output("X@GRAD");
  if (grad.dtype != out.dtype || grad.numel > out.numel) ctx.Unsupported("Out@GRAD does not fit X");
  const size_t width = SizeOf(out.dtype);
  return [=](Workspace& ws) {
    auto* bytes = ws.Data<char>(out);
    const size_t given = static_cast<size_t>(grad.numel) * width;
    if (given > 0) std::memcpy(bytes, ws.Data<const char>(grad), given);
    if (out.numel > grad.numel)
      std::memset(bytes + given, 0, static_cast<size_t>(out.numel) * width - given);
  };
}

void ShrinkGradient(GradientContext& g) {
  g.Append("shrink_rnn_memory_grad", {{"X", {g.Input("X")}}, {"Out@GRAD", {g.OutputGrad("Out")}}},
           {{"X@GRAD", {g.InputGrad("X")}}});
}

}  // namespace

void RegisterLodRankTable(OpRegistry& ops) {
  ops.Add(OpDef("lod_rank_table")
              .Doc("Out = the sequences of X's LoD level, longest first; of equal ones the earlier "
                   "first. An X without that level is an error of the run.")
              .Constraint("C1", "level must not be negative")
              .Input("X", "tensor with LoD")
              .Output("Out", "rank table")
              .Attr<int32_t>("level", 0, "level of the LoD")
              .NotDifferentiable("a rank table has no derivative")
              .Infer(InferTable)
              .Reference(MakeTable));
  ops.Add(OpDef("max_sequence_len")
              .Doc("Out = the length of the longest sequence of RankTable, 0 when there is none.")
              .Constraint("C1", "RankTable must be a rank table")
              .Input("RankTable", "rank table")
              .Output("Out", "int64 tensor [1]")
              .Takes(VarType::kLoDRankTable, {"RankTable"})
              .NotDifferentiable("a length has no derivative")
              .Infer([](InferContext& ctx) {
                RequireTable(ctx, "C1");
                ctx.SetOutput("Out", DType::kInt64, {1});
              })
              .Reference(MaxLength));
  ops.Add(OpDef("lod_tensor_to_array")
              .Doc("Out[t] = the rows at step t of those sequences that are longer than t, in the "
                   "order of RankTable.")
              .Constraint("C1", "RankTable must be a rank table")
              .Constraint("C2", "X must have rows")
              .Input("X", "tensor whose rows are those of the sequences, one after the other")
              .Input("RankTable", "rank table of them")
              .Output("Out", "tensor array")
              .Takes(VarType::kLoDRankTable, {"RankTable"})
              .NoGradientTo({"RankTable"})
              .RunTimeShape()
              .Infer(InferToArray)
              .Gradient(ToArrayGradient)
              .Reference(ToArray));
  ops.Add(
      OpDef("array_to_lod_tensor")
          .Doc("The inverse of lod_tensor_to_array: Out has the rows of the sequences one after "
               "the other, and their LoD; rows of elements that were not written are zero.")
          .Constraint("C1", "RankTable must be a rank table")
          .Constraint("C2", "X must be a tensor array")
          .Input("X", "tensor array")
          .Input("RankTable", "rank table")
          .OptionalInput("Like", "tensor of the type of Out")
          .Output("Out", "tensor with LoD")
          .Takes(VarType::kLoDTensorArray, {"X"})
          .Takes(VarType::kLoDRankTable, {"RankTable"})
          .NoGradientTo({"RankTable", "Like"})
          .RunTimeShape()
          .MakesLod()
          .Infer(InferFromArray)
          .Gradient(FromArrayGradient)
          .Reference(FromArray));
  ops.Add(OpDef("shrink_rnn_memory")
              .Doc("Out = the first rows of X, as many as sequences are longer than I.")
              .Constraint("C1", "RankTable must be a rank table")
              .Constraint("C2", "X must have rows")
              .Constraint("C3", "I must hold one int32 or int64")
              .Input("X", "tensor")
              .Input("RankTable", "rank table")
              .Input("I", "int32 or int64 tensor of one element: the step")
              .Output("Out", "tensor")
              .Takes(VarType::kLoDRankTable, {"RankTable"})
              .NoGradientTo({"RankTable", "I"})
              .RunTimeShape()
              .Infer(InferShrink)
              .Gradient(ShrinkGradient)
              .Reference(Shrink));
  ops.Add(OpDef("shrink_rnn_memory_grad")
              .Doc("X@GRAD = Out@GRAD, and zeros in the rows that Out lacks.")
              .Constraint("C1", "Out@GRAD must have the rank of X")
              .Input("X", "tensor")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "tensor of X's type")
              .NoGradientTo({"X"})
              .NoGradient("first order only")
              .Infer(InferShrinkGrad)
              .Reference(ShrinkGrad));
}

}  // namespace coracle
