// Step-by-step processing of batches of sequences of different lengths. Sequences are sorted by
// length, so that the first rows at step t belong to the sequences longer than t.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/control/lod_parts.h>
#include <coracle/operators/control/rank_table.h>
#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace coracle::lod_rank_table_op {

// A table from outside may hold any lengths, so the sum saturates at the largest number.
int64_t SumOfLengths(const RankTable& table) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t sum = 0;
  for (const RankTable::Item& item : table.items) sum += std::min(item.length, kMost - sum);
  return sum;
}

// The first level of X's LoD below the level of the table, at which the LoD of a step's elements
// begins. Without such a level, a step has one row of each sequence.
size_t LevelBelow(const LoD& lod, const RankTable& table) {
  return std::min(lod.size(), static_cast<size_t>(table.level) + 1);
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

// The first part of each sequence of the table, in the order of the table. A part of X is one step
// of one sequence: a row, or a sequence of the level below.
std::vector<int64_t> FirstParts(const RankTable& table) {
  const std::vector<int64_t> places = Places(table);
  std::vector<int64_t> first(table.items.size());
  int64_t at = 0;
  for (const int64_t place : places) {
    const auto k = static_cast<size_t>(place);
    first[k] = at;
    at += table.items[k].length;
  }
  return first;
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
  const std::string name = ctx.op().Input("X")[0];
  return [=](Workspace& ws) {
    const RankTable& t = TableAt(ws, table);
    const auto& tensor = std::get<Tensor>(ws.ValueOf(x));
    CheckLod(name, tensor);
    const LoD& lod = tensor.lod();
    const size_t below = LevelBelow(lod, t);
    const int64_t parts = SumOfLengths(t), given = CountAt(lod, below, tensor.shape()[0]);
    if (parts != given) {
      ThrowInvalid(
          fmt::format("lod_tensor_to_array: X has {} {}, but the sequences of RankTable have {}",
                      given, below < lod.size() ? "parts" : "rows", parts));
    }
    VarValue& value = ws.ValueOf(out);
    if (!std::holds_alternative<TensorArray>(value)) value = TensorArray();
    auto& array = std::get<TensorArray>(value);
    array.clear();
    const std::vector<int64_t> first = FirstParts(t);
    const int64_t steps = t.items.empty() ? 0 : t.items.front().length;
    std::vector<RowRange> ranges;
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t live = LongerThan(t, s);
      LoD levels = EmptyLevels(lod.size() - below);
      ranges.clear();
      int64_t rows = 0;
      for (int64_t k = 0; k < live; ++k) {
        const int64_t part = first[static_cast<size_t>(k)] + s;
        ranges.push_back(AppendSequences(lod, below, part, part + 1, &levels));
        rows += ranges.back().rows();
      }
      Tensor& element =
          array.Write(static_cast<size_t>(s), tensor.dtype(), WithRows(tensor.shape(), rows));
      const RowCopy copy(tensor.raw(), element.raw(), RowBytes(tensor.dtype(), tensor.shape()));
      int64_t to = 0;
      for (const RowRange& range : ranges) {
        copy(range.begin, to, range.rows());
        to += range.rows();
      }
      element.lod() = std::move(levels);
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

// The shape of one step's rows: from Like, or from any element.
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

void CheckStep(const Tensor& element, int64_t step, int64_t rows, const Tensor& out) {
  if (element.dtype() == out.dtype() && SameRows(element.shape(), out.shape()) &&
      element.shape()[0] == rows)
    return;
  ThrowInvalid(fmt::format(
      "array_to_lod_tensor: element {} of X is {}, but {} rows of the same shape as {} are needed",
      step, element.ToString(), rows, out.ToString()));
}

// The levels of Out below the level of the table, from the LoD of the elements; none if the
// elements have no LoD.
LoD JoinLevels(const TensorArray& array, const RankTable& t) {
  size_t levels = 0;
  for (size_t s = 0; s < array.size(); ++s) levels = std::max(levels, array[s].lod().size());
  if (levels == 0) return {};
  const int64_t steps = t.items.empty() ? 0 : t.items.front().length;
  for (int64_t s = 0; s < steps; ++s) {
    const auto at = static_cast<size_t>(s);
    if (!array.IsWritten(at))
      ThrowInvalid(fmt::format("array_to_lod_tensor: element {} of X was not written", s));
    CheckLod(fmt::format("element {}", s), array[at]);
    const LoD& lod = array[at].lod();
    if (lod.size() != levels || CountAt(lod, 0, 0) != LongerThan(t, s)) {
      ThrowInvalid(fmt::format(
          "array_to_lod_tensor: the LoD of element {} of X has {} levels and {} sequences, but "
          "other elements have {} levels and {} sequences are longer than that",
          s, lod.size(), CountAt(lod, 0, 0), levels, LongerThan(t, s)));
    }
  }
  LoD joined = EmptyLevels(levels);
  for (const int64_t k : Places(t)) {
    for (int64_t s = 0; s < t.items[static_cast<size_t>(k)].length; ++s)
      AppendSequences(array[static_cast<size_t>(s)].lod(), 0, k, k + 1, &joined);
  }
  return joined;
}

// The levels of Like below the level of the table.
LoD LevelsOf(const Tensor& like, const RankTable& t) {
  const LoD& lod = like.lod();
  return {lod.begin() + static_cast<ptrdiff_t>(LevelBelow(lod, t)), lod.end()};
}

// The first row of each part; if empty, part i is row i.
std::vector<uint64_t> RowsOfParts(const LoD& levels) {
  if (levels.empty()) return {};
  std::vector<uint64_t> rows = levels[0];
  for (size_t k = 1; k < levels.size(); ++k) {
    for (uint64_t& at : rows) at = levels[k][at];
  }
  return rows;
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
    const auto* model = like ? std::get_if<Tensor>(&ws.ValueOf(like)) : nullptr;
    if (model) CheckLod("Like", *model);
    LoD levels = model ? LevelsOf(*model, t) : JoinLevels(array, t);
    const std::vector<uint64_t> begins = RowsOfParts(levels);
    const int64_t parts = SumOfLengths(t);
    const int64_t given = levels.empty() ? parts : CountAt(levels, 0, 0);
    const int64_t rows = levels.empty() ? parts : static_cast<int64_t>(begins.back());
    if (given != parts || (like && (row.rank() == 0 || row[0] != rows))) {
      ThrowInvalid(
          fmt::format("array_to_lod_tensor: Like has the shape {}, the sequences of RankTable "
                      "have {} rows",
                      row.ToString(), rows));
    }
    Tensor& result = ResizeOutput(ws, out, dtype, WithRows(row, rows));
    if (!result.empty()) std::memset(result.raw(), 0, result.nbytes());
    const std::vector<int64_t> first = FirstParts(t);
    const auto begin = [&](int64_t part) {
      return begins.empty() ? part : static_cast<int64_t>(begins[static_cast<size_t>(part)]);
    };
    for (size_t s = 0; s < array.size(); ++s) {
      if (!array.IsWritten(s)) continue;
      const auto step = static_cast<int64_t>(s);
      const int64_t live = LongerThan(t, step);
      int64_t from = 0;
      for (int64_t k = 0; k < live; ++k) {
        const int64_t part = first[static_cast<size_t>(k)] + step;
        from += begin(part + 1) - begin(part);
      }
      CheckStep(array[s], step, from, result);
      const RowCopy copy(array[s].raw(), result.raw(), RowBytes(dtype, result.shape()));
      from = 0;
      for (int64_t k = 0; k < live; ++k) {
        const int64_t to = begin(first[static_cast<size_t>(k)] + step);
        const int64_t count = begin(first[static_cast<size_t>(k)] + step + 1) - to;
        copy(from, to, count);
        from += count;
      }
    }
    std::vector<uint64_t> offsets(t.items.size() + 1, 0);
    for (const RankTable::Item& item : t.items)
      offsets[static_cast<size_t>(item.index) + 1] = static_cast<uint64_t>(item.length);
    for (size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
    Tensor made = Tensor::View(dtype, result.shape(), nullptr);
    made.lod() = t.coarser;
    made.lod().push_back(std::move(offsets));
    made.lod().insert(made.lod().end(), levels.begin(), levels.end());
    CheckLod(name, made);  // a table from outside may have other levels
    ws.OutputLod(out) = std::move(made.lod());
  };
}

void FromArrayGradient(GradientContext& g) {
  g.Append("lod_tensor_to_array",
           {{"X", {g.OutputGrad("Out")}}, {"RankTable", {g.Input("RankTable")}}},
           {{"Out", {g.InputGrad("X")}}});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("lod_rank_table")
              .Doc("Out = the sequences of X's LoD level by falling length; sequences of equal "
                   "length keep their order. A run fails if X lacks the level.")
              .Constraint("C1", "level must not be negative")
              .Input("X", "tensor with LoD")
              .Output("Out", "rank table")
              .Attr<int32_t>("level", 0, "level of the LoD")
              .NotDifferentiable("a rank table has no derivative")
              .Rows(RowRule::kMixes)
              .Infer(InferTable)
              .Reference(MakeTable));
  ops.Add(
      OpDef("max_sequence_len")
          .Doc(
              "Out = the length of the longest sequence of RankTable; 0 if there are no sequences.")
          .Constraint("C1", "RankTable must be a rank table")
          .Input("RankTable", "rank table")
          .Output("Out", "int64 tensor [1]")
          .Takes(VarType::kLoDRankTable, {"RankTable"})
          .NotDifferentiable("a length has no derivative")
          .Rows(RowRule::kMixes)
          .Infer([](InferContext& ctx) {
            RequireTable(ctx, "C1");
            ctx.SetOutput("Out", DType::kInt64, {1});
          })
          .Reference(MaxLength));
  ops.Add(OpDef("lod_tensor_to_array")
              .Doc("Out[t] = the rows at step t of the sequences longer than t, in the order of "
                   "RankTable. If X's LoD has levels below the level of RankTable, Out[t] has the "
                   "sequences of the next level at step t, with their LoD.")
              .Constraint("C1", "RankTable must be a rank table")
              .Constraint("C2", "X must have rows")
              .Input("X", "tensor with the rows of the sequences, one after the other")
              .Input("RankTable", "rank table of the sequences")
              .Output("Out", "tensor array")
              .Takes(VarType::kLoDRankTable, {"RankTable"})
              .NoGradientTo({"RankTable"})
              .RunTimeShape()
              .Rows(RowRule::kMixes)
              .Infer(InferToArray)
              .Gradient(ToArrayGradient)
              .Reference(ToArray));
  ops.Add(OpDef("array_to_lod_tensor")
              .Doc("Inverse of lod_tensor_to_array: Out has the rows of the sequences one after "
                   "the other. Its LoD is the LoD of the sequences, continued by the LoD of the "
                   "elements. Rows of unwritten elements are zero.")
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
              .Rows(RowRule::kMixes)
              .Infer(InferFromArray)
              .Gradient(FromArrayGradient)
              .Reference(FromArray));
}

}  // namespace coracle::lod_rank_table_op
