#pragma once
// The gradient of a matrix of which a run uses few rows: dense, or selected rows with these.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/simd.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace coracle::inline internal {

template <class T>
class RowGradient {
 public:
  // `matrix`: the variable whose gradient is the output.
  RowGradient(const PrepareContext& ctx, const char* slot, const TensorArg& matrix)
      : matrix_(matrix),
        out_(ctx.Output(slot)),
        sparse_(out_ && IsSparse(out_)),
        rows_out_(ctx, slot) {}

  // The rows of one run, initially zeros.
  class Rows {
   public:
    explicit operator bool() const { return data_ != nullptr; }
    // REQUIRES: tell_rows has listed the row.
    T* At(int64_t row) const {
      if (sparse_) row = std::lower_bound(rows_.begin(), rows_.end(), row) - rows_.begin();
      return data_ + row * width_;
    }

   private:
    friend class RowGradient;
    T* data_ = nullptr;
    int64_t width_ = 0;
    bool sparse_ = false;
    std::vector<int64_t> rows_;  // ascending
  };

  // tell_rows(tell) must check the rows that the run uses, and call tell(row) for each of them.
  template <class TellRows>
  Rows Start(Workspace& ws, const TellRows& tell_rows) const {
    Rows rows;
    if (!out_) return rows;
    rows.width_ = matrix_.shape[1];
    rows.sparse_ = sparse_;
    int64_t count = matrix_.shape[0];
    if (sparse_) {
      std::vector<int64_t>& used = rows.rows_;
      tell_rows([&](int64_t row) { used.push_back(row); });
      std::sort(used.begin(), used.end());
      used.erase(std::unique(used.begin(), used.end()), used.end());
      count = static_cast<int64_t>(used.size());
      SelectedRows& made = rows_out_.Make(ws, count, matrix_.shape[0],
                                          Tensor::View(matrix_.dtype, matrix_.shape, nullptr));
      std::copy(used.begin(), used.end(), made.rows.begin());
      rows.data_ = made.value.data<T>();
    } else {
      rows.data_ = ws.Data<T>(out_);
    }
    if (rows.data_) std::fill_n(rows.data_, count * rows.width_, T(0));
    return rows;
  }

 private:
  TensorArg matrix_, out_;
  bool sparse_;
  RowsOutput rows_out_;
};

// The dot product: in double, or vectorised for float and kAuto.
template <class T>
double DotOf(const T* x, const T* y, int64_t n, KernelMode mode) {
  if constexpr (std::is_same_v<T, float>) {
    if (mode == KernelMode::kAuto) return static_cast<double>(simd::Dot(x, y, n));
  }
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

// to += scale from.
template <class T>
void AddScaled(const T* from, T scale, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += scale * from[i];
}

}  // namespace coracle::inline internal
