#pragma once
// Selected rows in kernels: checked inputs, outputs that keep their memory between runs, rows
// grouped by number, and loops that distribute rows over threads. No result depends on the number
// of threads.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/operators/kernels/arithmetic.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace coracle::inline internal {

inline bool IsSparse(const TensorArg& arg) { return arg.type == VarType::kSelectedRows; }

// Selected rows read by a kernel: row rows[i] of a tensor of `height` rows has the `width` elements
// from value[i * width] on.
struct RowsView {
  std::span<const int64_t> rows;  // each in [0, height)
  int64_t height = 0;
  int64_t width = 0;
  const Tensor* value = nullptr;

  int64_t count() const { return static_cast<int64_t>(rows.size()); }
  template <class T>
  const T* data() const {
    return value->data<T>();
  }
};

class RowsInput {
 public:
  // The shape is that of the variable in the program, with unknown dimensions from `like`.
  RowsInput(const PrepareContext& ctx, const char* slot, size_t i = 0, const Shape& like = {});
  // Throws kInvalidArgument if the variable does not hold selected rows of that shape and of its
  // dtype, kOutOfRange for a row outside of [0, height).
  RowsView operator()(Workspace& ws) const;

 private:
  TensorArg arg_;
  std::string what_;  // "sgd: Grad"
};

class RowsOutput {
 public:
  RowsOutput(const PrepareContext& ctx, const char* slot) : arg_(ctx.Output(slot)) {}
  // `count` rows of a tensor of `height` rows shaped like `like`; the kernel fills in numbers and
  // elements. REQUIRES: no input that is still to be read is the same variable.
  SelectedRows& Make(Workspace& ws, int64_t count, int64_t height, const Tensor& like) const;
  SelectedRows& Make(Workspace& ws, int64_t count, const RowsView& like) const {
    return Make(ws, count, like.height, *like.value);
  }
  // The same rows as `in`, for kernels that compute the elements one by one; `in` may be
  // the output.
  SelectedRows& MakeSame(Workspace& ws, const RowsView& in) const;
  // The output as it is, for other ways to fill it.
  SelectedRows& Of(Workspace& ws) const;
  DType dtype() const { return arg_.dtype; }

 private:
  TensorArg arg_;
};

// The stored rows grouped by number: rows[k], ascending, consists of the stored rows
// order[starts[k]] to order[starts[k + 1] - 1], in stored order.
struct RowGroups {
  std::span<const int64_t> rows;
  const int64_t* starts = nullptr;
  const int64_t* order = nullptr;

  int64_t count() const { return static_cast<int64_t>(rows.size()); }
};

class RowGrouper {
 public:
  explicit RowGrouper(const PrepareContext& ctx) : scratch_(ctx.ScratchArray()) {}
  // Valid until the next run.
  RowGroups operator()(Workspace& ws, const RowsView& rows) const;

 private:
  TensorArg scratch_;
};

// The rows that a thread works on: every row has one owner.
struct RowShare {
  uint64_t first = 0, last = 1, parts = 1;  // the parts [first, last) of all parts

  bool Has(int64_t row) const {
    const uint64_t mixed = (static_cast<uint64_t>(row) * 0x9E3779B97F4A7C15u) >> 32;
    const uint64_t part = (mixed * parts) >> 32;
    return part >= first && part < last;
  }
};

// Calls body(share), on several threads if there are many `elements`, such that every row is in one
// of the shares. Each body iterates over all stored rows and takes its own, so that equal rows come
// in stored order.
template <class Body>
void ForEachRowShare(int64_t elements, Body&& body) {
  const int64_t parts = elements < 16384 ? 1 : NumThreads();
  ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
    body(RowShare{static_cast<uint64_t>(begin), static_cast<uint64_t>(end),
                  static_cast<uint64_t>(parts)});
  });
}

// The prefetch distance, in rows, for rows of this many bytes.
inline int64_t PrefetchDistance(int64_t bytes) {
  return std::clamp<int64_t>(4096 / std::max<int64_t>(1, bytes), 4, 64);
}

// Prefetches the first cache lines of a row that will soon be read, and perhaps written.
template <bool write, class T>
void PrefetchRow(const T* row, int64_t width) {
  const char* at = reinterpret_cast<const char*>(row);
  const int64_t bytes = std::min<int64_t>(width * static_cast<int64_t>(sizeof(T)), 512);
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, write);
}

// Sums the stored rows of group k and passes the sum to body(begin, sum, n) in pieces: its elements
// [begin, begin + n) are sum[0] to sum[n - 1].
template <class T, class Body>
void SumGroup(const RowGroups& groups, int64_t k, const T* value, int64_t width, Body&& body) {
  const int64_t first = groups.starts[k], last = groups.starts[k + 1];
  const T* row = value + groups.order[first] * width;
  if (last == first + 1) return body(int64_t{0}, row, width);
  // Floats are added in double: a partial sum may overflow a float where the sum does not.
  using Sum = std::conditional_t<std::is_same_v<T, float>, double, T>;
  constexpr int64_t kPiece = 256;
  Sum sum[kPiece];
  T result[kPiece];
  for (int64_t begin = 0; begin < width; begin += kPiece) {
    const int64_t n = std::min(kPiece, width - begin);
    for (int64_t j = 0; j < n; ++j) sum[j] = Sum(row[begin + j]);
    for (int64_t i = first + 1; i < last; ++i) {
      const T* more = value + groups.order[i] * width + begin;
      for (int64_t j = 0; j < n; ++j) sum[j] = WrapAdd(sum[j], Sum(more[j]));
    }
    for (int64_t j = 0; j < n; ++j) result[j] = T(sum[j]);
    body(begin, static_cast<const T*>(result), n);
  }
}

// Prefetches the row of group k in each of the tables, which the caller will soon update.
template <class... T>
void PrefetchGroup(const RowGroups& groups, int64_t k, int64_t width, const T*... tables) {
  if (k >= groups.count()) return;
  const int64_t at = groups.rows[static_cast<size_t>(k)] * width;
  (PrefetchRow<true>(tables + at, width), ...);
}

// Calls body(k, begin, sum, n) for all groups, on several threads.
template <class T, class Body>
void ForEachGroup(const RowGroups& groups, const T* value, int64_t width, Body&& body) {
  const int64_t grain = 1 + 16384 / std::max<int64_t>(1, width);
  ParallelFor(groups.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      SumGroup(groups, k, value, width,
               [&](int64_t at, const T* sum, int64_t n) { body(k, at, sum, n); });
    }
  });
}

// Calls update(at, sum, n) for all elements [at, at + n) of the whole tensor, on several threads,
// with sums of the stored rows, and zeros for the others.
template <class T, class Update>
void ForEachRow(const RowGroups& groups, const RowsView& rows, Update&& update) {
  constexpr int64_t kZeros = 1024;
  static const T zeros[kZeros] = {};
  const int64_t width = rows.width;
  ParallelFor(
      rows.height, 1 + 16384 / std::max<int64_t>(1, width), [&](int64_t begin, int64_t end) {
        int64_t k =
            std::lower_bound(groups.rows.begin(), groups.rows.end(), begin) - groups.rows.begin();
        for (int64_t row = begin; row < end; ++row) {
          const bool more = k < groups.count() && groups.rows[static_cast<size_t>(k)] < end;
          const int64_t stored = more ? groups.rows[static_cast<size_t>(k)] : end;
          for (int64_t at = row * width; at < stored * width; at += kZeros)
            update(at, zeros, std::min(kZeros, stored * width - at));
          row = stored;
          if (!more) break;
          SumGroup(groups, k++, rows.data<T>(), width, [&](int64_t at, const T* sum, int64_t n) {
            update(stored * width + at, sum, n);
          });
        }
      });
}

// to[rows[i]] += value[i], in order.
template <class T>
void AddRows(const RowsView& from, T* to) {
  const T* value = from.data<T>();
  const int64_t width = from.width, count = from.count();
  ForEachRowShare(count * width, [&](const RowShare& share) {
    for (int64_t i = 0; i < count; ++i) {
      if (!share.Has(from.rows[static_cast<size_t>(i)])) continue;
      T* out = to + from.rows[static_cast<size_t>(i)] * width;
      for (int64_t j = 0; j < width; ++j) out[j] = WrapAdd(out[j], value[i * width + j]);
    }
  });
}

// The rows of `from`, ascending, with duplicates added.
template <class T>
SelectedRows& MergeRows(Workspace& ws, const RowsView& from, const RowGrouper& grouper,
                        const RowsOutput& out) {
  SelectedRows kept;
  RowsView source = from;
  if (from.value == &out.Of(ws).value) {  // in place
    kept = std::move(out.Of(ws));
    source = {kept.rows, from.height, from.width, &kept.value};
  }
  const RowGroups groups = grouper(ws, source);
  // Reserves memory for the largest possible number, so that fewer duplicates in later runs do
  // not allocate.
  out.Make(ws, source.count(), source);
  SelectedRows& merged = out.Make(ws, groups.count(), source);
  std::copy(groups.rows.begin(), groups.rows.end(), merged.rows.begin());
  T* to = merged.value.data<T>();
  ForEachGroup(groups, source.data<T>(), source.width,
               [&](int64_t k, int64_t begin, const T* sum, int64_t n) {
                 std::copy_n(sum, n, to + k * source.width + begin);
               });
  return merged;
}

}  // namespace coracle::inline internal
