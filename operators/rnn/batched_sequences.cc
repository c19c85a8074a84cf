#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/rnn/batched_sequences.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace coracle::inline internal {

BatchedSequences::BatchedSequences(const PrepareContext& ctx, int64_t rows, bool reverse)
    : counts_(ctx.Scratch(DType::kInt64, {CheckedAdd(rows, 1)})),
      starts_(ctx.Scratch(DType::kInt64, {CheckedAdd(rows, 1)})),
      rows_(ctx.Scratch(DType::kInt64, {rows})),
      order_(ctx.Scratch(DType::kInt64, {rows})),
      reverse_(reverse) {}

StepBatches BatchedSequences::Sort(Workspace& ws, const Sequences& sequences) const {
  int64_t* places = ws.Data<int64_t>(counts_);
  int64_t* starts = ws.Data<int64_t>(starts_);
  int64_t* rows = ws.Data<int64_t>(rows_);
  int64_t* order = ws.Data<int64_t>(order_);
  StepBatches out{0, starts, rows, order};
  for (int64_t i = 0; i < sequences.count(); ++i)
    out.steps = std::max(out.steps, sequences.length(i));
  // A counting sort by falling length: places[n] becomes the position of the next sequence of
  // length n.
  std::fill_n(places, out.steps + 1, 0);
  for (int64_t i = 0; i < sequences.count(); ++i) ++places[sequences.length(i)];
  int64_t count = 0;
  for (int64_t n = out.steps; n > 0; --n) count += std::exchange(places[n], count);
  for (int64_t i = 0; i < sequences.count(); ++i) {
    if (sequences.length(i) > 0) order[places[sequences.length(i)]++] = i;
  }
  starts[0] = 0;
  for (int64_t step = 0; step < out.steps; ++step) {
    while (sequences.length(order[count - 1]) <= step) --count;
    int64_t* batch = rows + starts[step];
    for (int64_t k = 0; k < count; ++k) {
      const int64_t i = order[k];
      batch[k] = reverse_ ? sequences.end(i) - 1 - step : sequences.begin(i) + step;
    }
    starts[step + 1] = starts[step] + count;
  }
  return out;
}

namespace {
int64_t RowGrain(size_t row_bytes) { return 1 + 65536 / (1 + static_cast<int64_t>(row_bytes)); }
}  // namespace

void GatherRowsOrZeros(const void* from, const int64_t* rows, int64_t count, size_t row_bytes,
                       void* to) {
  if (!from) {
    if (to) std::memset(to, 0, static_cast<size_t>(count) * row_bytes);
    return;
  }
  const RowCopy copy(from, to, row_bytes);
  ParallelFor(count, RowGrain(row_bytes), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) copy(rows[k], k, 1);
  });
}

void ScatterRows(const void* from, const int64_t* rows, int64_t count, size_t row_bytes, void* to) {
  const RowCopy copy(from, to, row_bytes);
  ParallelFor(count, RowGrain(row_bytes), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) copy(k, rows[k], 1);
  });
}

template <class T>
void SumOverRows(const T* x, int64_t rows, int64_t columns, T* sums) {
  constexpr int64_t kBlock = 64;  // columns that are summed together
  ParallelFor((columns + kBlock - 1) / kBlock, 1 + 1024 / (1 + rows),
              [&](int64_t begin, int64_t end) {
                for (int64_t block = begin; block < end; ++block) {
                  const int64_t first = block * kBlock;
                  const int64_t count = std::min(kBlock, columns - first);
                  double sum[kBlock] = {};
                  for (int64_t r = 0; r < rows; ++r) {
                    const T* row = x + r * columns + first;
                    for (int64_t c = 0; c < count; ++c) sum[c] += static_cast<double>(row[c]);
                  }
                  for (int64_t c = 0; c < count; ++c) sums[first + c] = static_cast<T>(sum[c]);
                }
              });
}

template void SumOverRows<float>(const float*, int64_t, int64_t, float*);
template void SumOverRows<double>(const double*, int64_t, int64_t, double*);

}  // namespace coracle::inline internal
