#pragma once
// Reduces buffers of several ranks, in the order of the ranks.

#include <coracle/communication/communicator.h>

#include <span>

namespace coracle::inline internal {

// For i in [begin, end) and every k: outs[k][i - out_begin] = ins[0][i] + ins[1][i] + ... (or
// another reduction). An out may be the same memory as an in at the same elements.
struct ReducedRange {
  int64_t begin, end, out_begin;
};
void ReduceParts(DType dtype, Reduction reduction, std::span<const void* const> ins,
                 const ReducedRange& range, std::span<void* const> outs);

}  // namespace coracle::inline internal
