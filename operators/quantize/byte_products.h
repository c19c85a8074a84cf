#pragma once
// Exact products of matrices of uint8 and int8 in int32, a block of rows and columns at a time. On
// machines with instructions for them (ExactIntegerProducts), oneDNN computes them. Elsewhere its
// kernels would saturate, and the elements are converted to float32: sums of up to kFloatSteps
// products are exact there.

#include <coracle/framework/op/op_context.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace coracle::inline internal {

constexpr int64_t kFloatSteps = 512;  // 512 * 255 * 128 < 2^24
// The longest sum of products of numbers in [-255, 255] that int32 can hold.
constexpr int64_t kLongestByteSum = 33025;

// The matrix B [k, n] of the products, of int8.
struct ByteFactor {
  int64_t k = 0, n = 0;
  bool transposed = false;  // stored as [n, k]
  bool flipped = false;     // stored as uint8, 128 too large
};

// The products A B, for a B that may be packed. They are computed in blocks of `rows` rows (the
// last one may have fewer) and of the columns of a panel.
class ByteProducts {
 public:
  struct Panel {
    int64_t column = 0, columns = 0;
  };
  // `parts`: how many blocks are computed at the same time. REQUIRES: no dimension is 0.
  ByteProducts(const ByteFactor& factor, int64_t rows, int64_t last_rows, int64_t panels,
               int64_t parts, bool packed);

  const std::vector<Panel>& panels() const;
  // Whether B is read as float32 [k, n] instead of int8, not flipped, as it is stored.
  bool in_floats() const;

  // The packed B, followed by the sums of its columns, of a B of this dtype and shape.
  PackedLayout Layout(DType dtype, const Shape& shape) const;
  // The sums of columns in a packed B.
  const int32_t* ColumnSums(const Tensor& packed) const;

  // Allocates scratch memory for the parts.
  void ReserveScratch(const PrepareContext& ctx);
  // sums [block rows, panel columns] = the block's rows of A, [rows, k], times the panel's
  // columns of B.
  void Run(Workspace& ws, int64_t part, int64_t panel, int64_t rows, const uint8_t* a,
           const void* b, int32_t* sums) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Columns of B, as they are stored, as the int8 or float32 that ByteProducts reads, and their sums.
// `to` may be nullptr if B is int8 and stays so.
void ConvertFactor(const ByteFactor& factor, bool in_floats, const uint8_t* b, void* to,
                   int32_t* sums);

}  // namespace coracle::inline internal
