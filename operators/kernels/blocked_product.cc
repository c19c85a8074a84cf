#include <coracle/operators/kernels/blocked_product.h>
#include <coracle/operators/kernels/matrix_tile.h>
#include <coracle/operators/kernels/panels.h>
#include <coracle/operators/kernels/simd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

namespace coracle::inline internal {
namespace {

// A panel of B, kDepth x 2 vectors, stays in the first-level cache while it is multiplied by kRows
// columns of A, which stay in the second-level cache. Packed data takes at most 448 KiB.
constexpr int64_t kDepth = 256, kRows = 192, kColumns = 256;
// Rows of A that are copied at a time.
constexpr int64_t kCopied = 8;

int64_t Parts(int64_t size, int64_t most) { return (size + most - 1) / most; }

void Scale(float* x, int64_t n, float factor) {
  static const simd::UnaryLoop scale = simd::FindUnary(simd::Unary::kScale);
  scale(x, x, n, {factor});
}

// Memory of the thread, which lives as long as the thread. Unused pages cost nothing.
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

  // Adds the products of depth_ columns of A to a block of C.
  void Block(int64_t row, int64_t rows) {
    const int64_t strips = Parts(rows, most_);
    PackA(row, rows, strips);
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
        for (int64_t i = 0; i < tile.height; ++i) {
          // The row may extend over two cache lines.
          __builtin_prefetch(tile.out + i * p_.c_row, 1);
          __builtin_prefetch(tile.out + i * p_.c_row + tile.lanes - 1, 1);
        }
        RunMatrixTile(tile);
      }
    }
  }

  // Packs strips of a tile's height: the strip of row `first` starts at first * depth_,
  // [depth_][height]. Copies a few rows of A at a time, which stay in the first-level cache even if
  // they are a power of two apart.
  void PackA(int64_t row, int64_t rows, int64_t strips) {
    for (int64_t p = 0; p < depth_; p += kCopied) {
      const float* from = p_.a + (begin_ + p) * p_.a_row + row;
      const int64_t count = std::min(kCopied, depth_ - p);
      for (int64_t s = 0; s < strips; ++s) {
        const int64_t first = rows * s / strips, height = rows * (s + 1) / strips - first;
        CopyRows(from + first, height, count, packed_a_ + first * depth_ + p * height);
      }
    }
  }
  void CopyRows(const float* from, int64_t height, int64_t count, float* to) const {
    // With a constant length, a copy is a few vector moves.
    const auto copy = [&](auto length) {
      for (int64_t p = 0; p < count; ++p)
        std::memcpy(to + p * length, from + p * p_.a_row, length * sizeof(float));
    };
    if (height == 6) return copy(std::integral_constant<size_t, 6>());
    if (height == 5) return copy(std::integral_constant<size_t, 5>());
    copy(static_cast<size_t>(height));
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

}  // namespace coracle::inline internal
