// edit_distance: Levenshtein's distance between sequences.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/sequence/parts.h>
#include <coracle/operators/sequence/sequence_batch.h>

#include <algorithm>
#include <numeric>

namespace coracle::edit_distance_op {

int64_t InferSide(const InferContext& ctx, const char* slot, const char* length_slot) {
  const VarMeta& x = ctx.Input(slot);
  const bool padded = ctx.HasInput(length_slot);
  const int rank = x.shape.rank(), own = padded ? 2 : 1;
  ctx.Require("C1",
              IsIndexType(x.dtype) &&
                  (rank == own || (rank == own + 1 && InferContext::Matches(x.shape[own], 1))),
              slot, x);
  return CountSequences(ctx, "C2", slot, length_slot);
}

void InferDistance(InferContext& ctx) {
  const int64_t hyps = InferSide(ctx, "Hyps", "HypsLength");
  const int64_t refs = InferSide(ctx, "Refs", "RefsLength");
  ctx.Require("C3", InferContext::Matches(hyps, refs), "Hyps", hyps, "Refs", refs);
  ctx.SetOutput("SequenceNum", DType::kInt64, {1});
  ctx.SetOutput("Out", DType::kFloat32, {hyps < 0 ? refs : hyps, 1});
}

// row[k] = the distance of a prefix of `a` to the first k symbols of `b`.
int64_t Distance(const int64_t* a, int64_t a_length, const int64_t* b, int64_t b_length,
                 int64_t* row) {
  std::iota(row, row + b_length + 1, int64_t{0});
  for (int64_t i = 0; i < a_length; ++i) {
    if (i % 256 == 0) CheckTimeLimit("computing an edit distance");
    const int64_t symbol = a[i];
    int64_t diagonal = row[0]++, left = row[0];
    for (int64_t k = 0; k < b_length; ++k) {
      const int64_t above = row[k + 1];
      const int64_t best = std::min(diagonal + int64_t{symbol != b[k]}, above + 1);
      diagonal = above;
      row[k + 1] = left = std::min(best, left + 1);
    }
  }
  return row[b_length];
}

Kernel EditDistance(const PrepareContext& ctx) {
  const TensorArg hyps = ctx.Input("Hyps"), refs = ctx.Input("Refs");
  const TensorArg num = ctx.Output("SequenceNum"), out = ctx.Output("Out");
  const SequenceBatch hyp_batch(ctx, "Hyps", "HypsLength", "C2");
  const SequenceBatch ref_batch(ctx, "Refs", "RefsLength", "C2");
  const RunConstraint paired(ctx, "C3"), not_empty(ctx, "C4");
  const TensorArg memory = ctx.ScratchArray();
  const bool normalized = ctx.Attr<bool>("normalized");
  return [=](Workspace& ws) {
    const BatchRows h = hyp_batch(ws), r = ref_batch(ws);
    paired.Require(h.count() == r.count(), "Hyps", h.count(), "Refs", r.count());
    const IndexReader found(ws, hyps), wanted(ws, refs);
    // Memory of each thread: the symbols of both sequences, and a row.
    const int64_t most_found = h.longest(), most_wanted = r.longest();
    const int64_t parts =
        PartsOf(h.count(), static_cast<double>(most_found) * static_cast<double>(most_wanted) *
                               static_cast<double>(h.count()));
    auto& scratch = std::get<TensorArray>(ws.ValueOf(memory));
    auto* both = scratch.Write(0, DType::kInt64, {parts, CheckedAdd(most_found, most_wanted)})
                     .data<int64_t>();
    auto* rows = scratch.Write(1, DType::kInt64, {parts, most_wanted + 1}).data<int64_t>();
    if (num) ws.Data<int64_t>(num)[0] = h.count();
    ForEachItem(h.count(), parts, [&](int64_t i, int64_t part) {
      const int64_t length = r.length(i);
      not_empty.Require(!normalized || length > 0, "sequence", i, "of length", length);
      int64_t *a = both + part * (most_found + most_wanted), *b = a + most_found;
      for (int64_t k = 0; k < h.length(i); ++k) a[k] = found[h.begin(i) + k];
      for (int64_t k = 0; k < length; ++k) b[k] = wanted[r.begin(i) + k];
      const auto distance =
          static_cast<double>(Distance(a, h.length(i), b, length, rows + part * (most_wanted + 1)));
      ws.Data<float>(out)[i] =
          static_cast<float>(normalized ? distance / static_cast<double>(length) : distance);
    });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("edit_distance")
              .Doc("Out[i] = the fewest insertions, deletions and replacements that turn sequence "
                   "i of Hyps into sequence i of Refs; normalized: divided by the length of the "
                   "latter.")
              .Constraint("C1",
                          "Hyps and Refs must be int32 or int64, [symbols, 1] with LoD or "
                          "[batch, time] with lengths")
              .Constraint("C2", kBatchText)
              .Constraint("C3", "Hyps and Refs must have the same number of sequences")
              .Constraint("C4", "with normalized, no sequence of Refs may be empty")
              .Input("Hyps", "int32 or int64 tensor: the recognised symbols")
              .Input("Refs", "int32 or int64 tensor: the true symbols")
              .OptionalInput("HypsLength", "int32 or int64 tensor [batch]")
              .OptionalInput("RefsLength", "int32 or int64 tensor [batch]")
              .OptionalOutput("SequenceNum", "int64 tensor [1]: the number of sequences")
              .Output("Out", "float32 tensor [sequences, 1]")
              .Attr<bool>("normalized", false, "divide by the length of the true sequence")
              .NoLod()
              .NotDifferentiable("works on integers")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferDistance)
              .Reference(EditDistance));
}

}  // namespace coracle::edit_distance_op
