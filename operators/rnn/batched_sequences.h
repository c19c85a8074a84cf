#pragma once
// Sequences of different lengths as a batch for each time step, for recurrent ops. All first rows
// stand before all second rows, and so on; in each step the longest sequence is the first one. The
// sequences that take part in a step are then the first ones of the step before, so a step is one
// dense matrix whose rows become fewer from step to step.

#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/sequence/sequences.h>

#include <cstdint>

namespace coracle {

// The rows of one run in the order of time: "sorted" rows.
struct StepBatches {
  int64_t steps = 0;
  const int64_t* starts = nullptr;  // [steps + 1]: the first sorted row of each step
  const int64_t* rows = nullptr;    // the row of the tensor at each sorted place
  // The number of the k-th longest sequence (of equal ones, in their order); those without rows are
  // left out.
  const int64_t* sequences = nullptr;

  int64_t Start(int64_t step) const { return starts[step]; }
  int64_t Size(int64_t step) const { return starts[step + 1] - starts[step]; }
  int64_t Count() const { return steps > 0 ? Size(0) : 0; }  // of sequences with rows
};

class BatchedSequences {
 public:
  // For tensors with so many rows; `reverse`: each sequence begins with its last row.
  BatchedSequences(const PrepareContext& ctx, int64_t rows, bool reverse);
  // Valid until the end of the kernel's run.
  StepBatches Sort(Workspace& ws, const Sequences& sequences) const;

 private:
  TensorArg counts_, starts_, rows_, order_;
  bool reverse_;
};

// to[k] = from[rows[k]], or zeros where `from` is null, and to[rows[k]] = from[k], for rows of so
// many bytes.
void GatherRowsOrZeros(const void* from, const int64_t* rows, int64_t count, size_t row_bytes,
                       void* to);
void ScatterRows(const void* from, const int64_t* rows, int64_t count, size_t row_bytes, void* to);

// sums[c] = the sum over rows of x[row * columns + c], added up in double.
template <class T>
void SumOverRows(const T* x, int64_t rows, int64_t columns, T* sums);
extern template void SumOverRows<float>(const float*, int64_t, int64_t, float*);
extern template void SumOverRows<double>(const double*, int64_t, int64_t, double*);

}  // namespace coracle
