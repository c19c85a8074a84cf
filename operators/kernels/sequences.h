#pragma once
// Sequences of a batch, from the LoD of an input. A sequence of length 0 and a batch without
// sequences are valid.

#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// One level of a LoD: sequence i has the rows (or sequences of the next level) [begin(i), end(i)).
class Sequences {
 public:
  explicit Sequences(const std::vector<uint64_t>& offsets) : offsets_(offsets) {}
  int64_t count() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t begin(int64_t i) const { return static_cast<int64_t>(offsets_[static_cast<size_t>(i)]); }
  int64_t end(int64_t i) const { return begin(i + 1); }
  int64_t length(int64_t i) const { return end(i) - begin(i); }

 private:
  const std::vector<uint64_t>& offsets_;
};

// The sequences of rows of an input in a run: those of the last level of its LoD. A LoD that is
// missing, has more than `most_levels` levels or does not end with the last row violates the
// constraint. With `nothing_is_a_row`, a single row in no sequence is accepted: ctc_align writes it
// if nothing is left.
class SequencesArg {
 public:
  SequencesArg(const PrepareContext& ctx, const char* slot, std::string_view id,
               size_t most_levels = 1, size_t i = 0, bool nothing_is_a_row = false)
      : arg_(ctx.Input(slot, i)),
        most_levels_(most_levels),
        nothing_is_a_row_(nothing_is_a_row),
        failure_(ctx.Failure(id)) {}

  Sequences operator()(Workspace& ws) const {
    const LoD& lod = ws.LodOf(arg_);
    if (lod.empty() || lod.size() > most_levels_)
      ThrowInvalid(failure_ + ", got " + std::to_string(lod.size()) + " levels");
    const int64_t rows = arg_.shape.rank() > 0 ? arg_.shape[0] : 1;
    const bool nothing = nothing_is_a_row_ && rows == 1 && lod.back().back() == 0;
    if (lod.back().back() != static_cast<uint64_t>(rows) && !nothing) {
      ThrowInvalid(failure_ + ", got sequences of " + std::to_string(lod.back().back()) +
                   " rows in a tensor of " + std::to_string(rows));
    }
    return Sequences(lod.back());
  }

 private:
  TensorArg arg_;
  size_t most_levels_;
  bool nothing_is_a_row_;
  std::string failure_;
};

// A constraint that only a run can check.
class RunConstraint {
 public:
  RunConstraint(const PrepareContext& ctx, std::string_view id) : failure_(ctx.Failure(id)) {}
  // `got` follows the message; it is formatted only if the constraint is violated.
  template <class... Got>
  void Require(bool holds, const Got&... got) const {
    if (!holds) ThrowInvalid(failure_ + ", got " + GotValues(got...).text());
  }

 private:
  std::string failure_;
};

// Elements and bytes of one row.
inline int64_t RowWidth(const Shape& shape) { return shape.Product(1, shape.rank()); }
inline size_t RowBytes(DType dtype, const Shape& shape) {
  return ByteSize(dtype, {RowWidth(shape)});
}

inline Shape WithRows(Shape shape, int64_t rows) {
  shape[0] = rows;
  return shape;
}

// Whether two shapes agree in all dimensions except the first.
inline bool SameRows(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank() || a.rank() == 0) return false;
  return WithRows(a, 0).CompatibleWith(WithRows(b, 0));
}

// Copies rows between two tensors.
class RowCopy {
 public:
  RowCopy(const void* from, void* to, size_t row_bytes)
      : from_(static_cast<const char*>(from)), to_(static_cast<char*>(to)), bytes_(row_bytes) {}
  void operator()(int64_t from, int64_t to, int64_t rows) const {
    if (rows <= 0 || bytes_ == 0) return;
    std::memcpy(to_ + static_cast<size_t>(to) * bytes_, from_ + static_cast<size_t>(from) * bytes_,
                static_cast<size_t>(rows) * bytes_);
  }

 private:
  const char* from_;
  char* to_;
  size_t bytes_;
};

}  // namespace coracle::inline internal
