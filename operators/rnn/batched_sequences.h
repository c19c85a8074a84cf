#pragma once
// Sequences of different lengths as a batch for each time step, for recurrent ops. All first rows
// come before all second rows, and so on; in each step, the longest sequence comes first. The
// sequences of a step are then the first ones of the previous step, so a step is a dense matrix
// with fewer and fewer rows.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/kernels/sequences.h>

#include <cstdint>

namespace coracle::inline internal {

// The rows of one run in time order: "sorted" rows.
struct StepBatches {
  int64_t steps = 0;
  const int64_t* starts = nullptr;  // [steps + 1]: the first sorted row of each step
  const int64_t* rows = nullptr;    // for each sorted row, its row in the tensor
  // The index of the k-th longest sequence (equal lengths keep their order); sequences without rows
  // are left out.
  const int64_t* sequences = nullptr;

  int64_t Start(int64_t step) const { return starts[step]; }
  int64_t Size(int64_t step) const { return starts[step + 1] - starts[step]; }
  int64_t Count() const { return steps > 0 ? Size(0) : 0; }  // of sequences with rows
};

class BatchedSequences {
 public:
  // For tensors with `rows` rows; with `reverse`, each sequence begins with its last row.
  BatchedSequences(const PrepareContext& ctx, int64_t rows, bool reverse);
  // Valid until the end of the kernel's run.
  StepBatches Sort(Workspace& ws, const Sequences& sequences) const;

 private:
  TensorArg counts_, starts_, rows_, order_;
  bool reverse_;
};

// to[k] = from[rows[k]], or zeros if `from` is null; and to[rows[k]] = from[k]. Rows have
// `row_bytes` bytes.
void GatherRowsOrZeros(const void* from, const int64_t* rows, int64_t count, size_t row_bytes,
                       void* to);
void ScatterRows(const void* from, const int64_t* rows, int64_t count, size_t row_bytes, void* to);

// sums[c] = the sum over rows of x[row * columns + c], computed in double.
template <class T>
void SumOverRows(const T* x, int64_t rows, int64_t columns, T* sums);
extern template void SumOverRows<float>(const float*, int64_t, int64_t, float*);
extern template void SumOverRows<double>(const double*, int64_t, int64_t, double*);

}  // namespace coracle::inline internal
