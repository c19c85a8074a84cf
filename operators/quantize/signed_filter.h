#pragma once
// Filters and matrices of constants as int8, for kernels that multiply uint8 by int8.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <vector>

namespace coracle::inline internal {

// A constant q of int8 or uint8 with zero points z. Row m means q[m] - z[m], where z has one
// element for each row, or one, or none (0).
struct SignedRows {
  SignedRows(const Tensor& q, const std::vector<int32_t>& zeros, int64_t num_rows);

  // The meaning of row m is values[m] - rest[m].
  Tensor values;              // int8, of the shape of q
  std::vector<int32_t> rest;  // all 0 if every difference fits into int8
  std::vector<int32_t> sums;  // of values, for each row
  int64_t row = 0;            // elements of a row
  int32_t largest = 0;        // |value|
  int64_t largest_sum = 0;    // of a row's |values|
  bool has_rest() const;
};

}  // namespace coracle::inline internal
