#include <coracle/operators/kernels/blocked_product.h>
#include <coracle/operators/kernels/matrix_tile.h>
#include <coracle/operators/kernels/panels.h>
#include <coracle/operators/kernels/simd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#ifdef TUNE
int64_t kDepth = 256, kRows = 192, kColumns = 512;
bool prefetch = true;
#endif

namespace coracle {
namespace {

#ifndef TUNE
constexpr int64_t kDepth = 256, kRows = 192, kColumns = 512;
constexpr bool prefetch = true;
#endif

int64_t Parts(int64_t size, int64_t most) { return (size + most - 1) / most; }

void Scale(float* x, int64_t n, float factor) {
  static const simd::UnaryLoop scale = simd::FindUnary(simd::Unary::kScale);
  scale(x, x, n, {factor});
}

// Memory of the thread, which lasts as long as it does. Pages that are never used cost nothing.
float* ThreadFloats(int64_t count) {
  constexpr int64_t kLine = 16;
  thread_local const auto memory =
      std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count + kLine));
  const auto address = reinterpret_cast<uintptr_t>(memory.get()) / sizeof(float);
  return memory.get() + (kLine - address % kLine) % kLine;
}

class Blocks {
 public:
  explicit Blocks(const BlockedProduct& p)
      : p_(p), width_(2 * VectorLanes()), most_(MaxTileHeight()) {
    packed_b_ = ThreadFloats(kDepth * (kColumns + kRows));
    packed_a_ = packed_b_ + kDepth * kColumns;
  }

  void Run(const FinishBlock& finish) {
    for (int64_t i = 0; p_.beta != 0 && p_.beta != 1 && i < p_.m; ++i)
      Scale(p_.c + i * p_.c_row, p_.n, p_.beta);
    const int64_t parts = Parts(p_.k, kDepth), sides = Parts(p_.n, kColumns);
    const int64_t panels = Parts(p_.n, width_);
    for (int64_t side = 0; side < sides; ++side) {
      column_ = panels * side / sides * width_;
      columns_ = std::min(p_.n, panels * (side + 1) / sides * width_) - column_;
      for (int64_t part = 0; part < parts; ++part) {
        begin_ = p_.k * part / parts;
        depth_ = p_.k * (part + 1) / parts - begin_;
        PackB();
        const int64_t blocks = Parts(p_.m, kRows);
        for (int64_t i = 0; i < blocks; ++i) {
          const int64_t row = p_.m * i / blocks, rows = p_.m * (i + 1) / blocks - row;
          Block(row, rows);
          if (part + 1 == parts) finish(row, rows, column_, columns_);
        }
      }
    }
  }

 private:
  void PackB() {
    const float* from = p_.b + begin_ * p_.b_row + column_ * p_.b_step;
    if (p_.b_step == 1)
      PackRows(from, p_.b_row, depth_, columns_, width_, packed_b_);
    else
      PackColumns(from, p_.b_step, columns_, depth_, width_, packed_b_);
    if (p_.alpha != 1) Scale(packed_b_, Parts(columns_, width_) * width_ * depth_, p_.alpha);
  }

  // A block of C, which gets the products of depth_ columns of A.
  void Block(int64_t row, int64_t rows) {
    const int64_t strips = Parts(rows, most_);
    for (int64_t s = 0; s < strips; ++s) {
      const int64_t first = rows * s / strips;
      CopyStrip(row + first, rows * (s + 1) / strips - first, packed_a_ + first * depth_);
    }
    MatrixTile tile;
    tile.a_step = 1;
    tile.b_k = width_;
    tile.k = depth_;
    tile.out_step = p_.c_row;
    tile.add = begin_ > 0 || p_.beta != 0;
    for (int64_t j = 0; j < columns_; j += width_) {
      tile.b = packed_b_ + j * depth_;
      tile.lanes = std::min(width_, columns_ - j);
      tile.vectors = tile.lanes > width_ / 2 ? 2 : 1;
      for (int64_t s = 0; s < strips; ++s) {
        const int64_t first = rows * s / strips;
        tile.height = static_cast<int>(rows * (s + 1) / strips - first);
        tile.a = packed_a_ + first * depth_;
        tile.a_k = tile.height;
        tile.out = p_.c + (row + first) * p_.c_row + column_ + j;
#ifdef TUNE
        if (prefetch)
#endif
          for (int64_t i = 0; i < tile.height; ++i) {
            // Both lines that it may stand in.
            __builtin_prefetch(tile.out + i * p_.c_row, 1);
            __builtin_prefetch(tile.out + i * p_.c_row + tile.lanes - 1, 1);
          }
        RunMatrixTile(tile);
      }
    }
  }

  // to[p][i] = A^T(row + i, begin_ + p). Of known length, a copy is a few moves of vectors.
  void CopyStrip(int64_t row, int64_t height, float* to) const {
    const float* from = p_.a + begin_ * p_.a_row + row;
    switch (height) {
      case 6:
        return CopyRows<6>(from, to);
      case 5:
        return CopyRows<5>(from, to);
      default:
        for (int64_t p = 0; p < depth_; ++p)
          std::copy_n(from + p * p_.a_row, height, to + p * height);
    }
  }
  template <int kHeight>
  void CopyRows(const float* from, float* to) const {
    for (int64_t p = 0; p < depth_; ++p, from += p_.a_row, to += kHeight)
      std::memcpy(to, from, kHeight * sizeof(float));
  }

  const BlockedProduct& p_;
  const int64_t width_, most_;
  float *packed_a_, *packed_b_;
  int64_t column_ = 0, columns_ = 0, begin_ = 0, depth_ = 0;
};

}  // namespace

void RunBlockedProduct(const BlockedProduct& product, const FinishBlock& finish) {
  Blocks(product).Run(finish);
}

}  // namespace coracle
