#pragma once
// Batches of sequences in the two layouts of the sequence labelling ops: rows with LoD of one level
// or, with a tensor of lengths, [batch, time, ...] in which the first steps of each item are used.

#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

namespace coracle::inline internal {

constexpr const char* kBatchText =
    "sequences must be rows with LoD of one level, or [batch, time, ...] with an int32 or int64 "
    "length in [0, time] for each";

// The number of sequences of an input; -1 if unknown. `id` is the constraint described
// by kBatchText.
inline int64_t CountSequences(const InferContext& ctx, std::string_view id, const char* slot,
                              const char* length_slot) {
  const Shape& x = ctx.InputShape(slot);
  if (ctx.HasInput(length_slot)) {
    const VarMeta& length = ctx.Input(length_slot);
    const int rank = length.shape.rank();
    // A list of n is [n], or a row or column of a matrix.
    const bool column = rank == 1 || (rank == 2 && InferContext::Matches(length.shape[1], 1) &&
                                      InferContext::Matches(length.shape[0], x[0]));
    const bool row = rank == 2 && InferContext::Matches(length.shape[0], 1);
    const int64_t count = rank == 0 ? 1 : length.shape[column ? 0 : 1];
    ctx.Require(id,
                x.rank() >= 2 && IsIndexType(length.dtype) && (column || row) &&
                    InferContext::Matches(count, x[0]),
                slot, x, length_slot, length);
    return x[0];
  }
  ctx.Require(id, x.rank() >= 1, slot, x);
  const auto sizes = ctx.LevelSizes(slot);
  if (!sizes) return -1;
  ctx.Require(id, sizes->size() == 1, slot, x, "levels", sizes->size());
  return sizes->front();
}

// The sequences of one run. Sequence i has the steps [0, length(i)), which begin at row begin(i) of
// the input; rows are counted over its first dimension, or its first two.
class BatchRows {
 public:
  explicit BatchRows(const Sequences& s) : sequences_(s), count_(s.count()) {}
  BatchRows(const IndexReader& lengths, int64_t count, int64_t time)
      : lengths_(lengths), count_(count), time_(time) {}
  int64_t count() const { return count_; }
  int64_t begin(int64_t i) const { return sequences_ ? sequences_->begin(i) : i * time_; }
  int64_t length(int64_t i) const { return sequences_ ? sequences_->length(i) : (*lengths_)[i]; }
  int64_t longest() const {
    int64_t most = 0;
    for (int64_t i = 0; i < count_; ++i) most = std::max(most, length(i));
    return most;
  }

 private:
  std::optional<Sequences> sequences_;
  std::optional<IndexReader> lengths_;
  int64_t count_ = 0, time_ = 0;
};

// The sequences of an input in a run, checked.
class SequenceBatch {
 public:
  // `time_axis` is the time axis of the padded layout; the other one of the first two axes is
  // the batch.
  SequenceBatch(const PrepareContext& ctx, const char* slot, const char* length_slot,
                std::string_view id, int time_axis = 1)
      : sequences_(ctx, slot, id, 1, 0, true),
        valid_(ctx, id),
        length_(ctx.Input(length_slot)),
        x_(ctx.Input(slot).shape),
        time_axis_(time_axis) {}

  bool padded() const { return static_cast<bool>(length_); }
  BatchRows operator()(Workspace& ws) const {
    if (!padded()) return BatchRows(sequences_(ws));
    const IndexReader lengths(ws, length_);
    const int64_t time = x_[time_axis_], count = x_[1 - time_axis_];
    for (int64_t i = 0; i < count; ++i)
      valid_.Require(lengths[i] >= 0 && lengths[i] <= time, "length", lengths[i], "time", time);
    return {lengths, count, time};
  }

 private:
  SequencesArg sequences_;
  RunConstraint valid_;
  TensorArg length_;
  Shape x_;
  int time_axis_;
};

}  // namespace coracle::inline internal
