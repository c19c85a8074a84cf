#pragma once
// Maps rows of a tensor to the images of a batch.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/index.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// Image i of a batch has the rows [offsets[i], offsets[i + 1]).
using RowOffsets = std::vector<uint64_t>;

// The rows of an input by image: from the counts in an int32 or int64 tensor if given, otherwise
// from the last level of the input's LoD; without LoD, all rows belong to one image. Counts that
// are negative, or do not add up to the rows, violate the constraint.
class ImagesArg {
 public:
  ImagesArg(const PrepareContext& ctx, const char* slot, const char* counts_slot,
            std::string_view id, size_t i = 0)
      : rows_(ctx.Input(slot, i)),
        counts_(counts_slot ? ctx.Input(counts_slot, i) : TensorArg()),
        fits_(ctx, id) {}

  RowOffsets operator()(Workspace& ws) const {
    const auto rows = static_cast<uint64_t>(rows_.shape[0]);
    if (!counts_) {
      const LoD& lod = ws.LodOf(rows_);
      return lod.empty() ? RowOffsets{0, rows} : lod.back();
    }
    const IndexReader counts(ws, counts_);
    RowOffsets offsets{0};
    for (int64_t i = 0; i < counts_.numel; ++i) {
      const bool fits = counts[i] >= 0 && static_cast<uint64_t>(counts[i]) <= rows - offsets.back();
      fits_.Require(fits, "count", counts[i], "rows", rows_.shape[0]);
      offsets.push_back(offsets.back() + static_cast<uint64_t>(counts[i]));
    }
    fits_.Require(offsets.back() == rows, "counted", offsets.back(), "rows", rows_.shape[0]);
    return offsets;
  }
  // Like the operator above, and checks that there are `images` images.
  RowOffsets operator()(Workspace& ws, int64_t images) const {
    RowOffsets offsets = (*this)(ws);
    fits_.Require(Sequences(offsets).count() == images, "images of the rows",
                  Sequences(offsets).count(), "images", images);
    return offsets;
  }

 private:
  TensorArg rows_, counts_;
  RunConstraint fits_;
};

}  // namespace coracle::inline internal
