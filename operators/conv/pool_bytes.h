#pragma once
// Pooling of images of int8 or uint8, in the widest SIMD of the machine.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/conv/pool.h>

#include <cstdint>
#include <memory>

namespace coracle::inline internal {

// REQUIRES: images that are not empty.
class BytePool {
 public:
  BytePool(const PrepareContext& ctx, const PoolGeometry& g);

  // The maximum of each window; 0 for a window without elements.
  void Max(Workspace& ws, const int8_t* x, int8_t* out) const;
  void Max(Workspace& ws, const uint8_t* x, uint8_t* out) const;

 private:
  template <class T>
  void Run(Workspace& ws, const T* x, T* out) const;
  template <class T>
  void RunNchw(const T* x, T* row, T* out, int64_t plane) const;

  std::shared_ptr<const PoolTables> tables_;
  TensorArg rows_;  // a row for each part of the work
  int64_t parts_ = 1;
};

// --- loops ---

// to[i] = max(to[i], from[i])
void MaxOfBytes(const int8_t* from, int8_t* to, int64_t n);
void MaxOfBytes(const uint8_t* from, uint8_t* to, int64_t n);

// [rows, columns] pixels of `channels` bytes, at `row_step` and `step` bytes from each other.
struct PixelWindow {
  const uint8_t* first = nullptr;
  int64_t rows = 0, columns = 0, row_step = 0, step = 0;
};
// out[c] = the maximum of channel c over the pixels, of which there is at least one.
void MaxOfPixels(const PixelWindow& window, int64_t channels, int8_t* out);
void MaxOfPixels(const PixelWindow& window, int64_t channels, uint8_t* out);
// sums[c] = the sum of channel c, as uint8, whose highest bit is flipped first if `flip`.
// REQUIRES: fewer than 2^23 pixels.
void SumPixelBytes(const PixelWindow& window, int64_t channels, bool flip, int32_t* sums);
// sums[i] += from[i], flipped likewise.
void AddBytes(const uint8_t* from, int64_t n, bool flip, int32_t* sums);

}  // namespace coracle::inline internal
