#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/copy.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace coracle::inline internal {
namespace {

constexpr int64_t kGrainBytes = 1 << 18;  // fewer bytes are not worth waking a thread
// Rows and columns of a tile.
template <class T>
constexpr int64_t kTile = sizeof(T) == 1 ? 64 : 32;

// An element of complex128.
struct alignas(8) Bytes16 {
  uint64_t words[2];
};

template <class F>
void DispatchSize(size_t size, F&& f) {
  switch (size) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    case 16:
      return f(Bytes16{});
  }
  throw InternalError("an element of an unknown size");
}

typedef uint32_t Vec4 __attribute__((vector_size(16), aligned(4), may_alias));

// Rows r of 4 words at from + r * stride become columns: 4 rows at to + c * to_stride.
inline void Transpose4x4(const uint32_t* from, int64_t from_stride, uint32_t* to,
                         int64_t to_stride) {
  const Vec4 a = *reinterpret_cast<const Vec4*>(from);
  const Vec4 b = *reinterpret_cast<const Vec4*>(from + from_stride);
  const Vec4 c = *reinterpret_cast<const Vec4*>(from + 2 * from_stride);
  const Vec4 d = *reinterpret_cast<const Vec4*>(from + 3 * from_stride);
  const Vec4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Vec4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Vec4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Vec4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *reinterpret_cast<Vec4*>(to) = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  *reinterpret_cast<Vec4*>(to + to_stride) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  *reinterpret_cast<Vec4*>(to + 2 * to_stride) =
      __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  *reinterpret_cast<Vec4*>(to + 3 * to_stride) =
      __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

// Interleaves three rows as the columns of a matrix: converts the planes of an image to pixels.
inline void Interleave3(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t columns) {
  const uint32_t *x = from, *y = from + from_stride, *z = from + 2 * from_stride;
  int64_t i = 0;
  for (; i + 4 <= columns; i += 4, to += 12) {
    const Vec4 a = *reinterpret_cast<const Vec4*>(x + i);
    const Vec4 b = *reinterpret_cast<const Vec4*>(y + i);
    const Vec4 c = *reinterpret_cast<const Vec4*>(z + i);
    const Vec4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);  // a0 b0 a1 b1
    const Vec4 bc = __builtin_shufflevector(b, c, 1, 5, 2, 6);  // b1 c1 b2 c2
    const Vec4 ca = __builtin_shufflevector(c, a, 2, 7, 3, 3);  // c2 a3 c3
    *reinterpret_cast<Vec4*>(to) = __builtin_shufflevector(ab, c, 0, 1, 4, 2);
    *reinterpret_cast<Vec4*>(to + 4) = __builtin_shufflevector(bc, a, 0, 1, 6, 2);
    *reinterpret_cast<Vec4*>(to + 8) = __builtin_shufflevector(ca, b, 0, 1, 7, 2);
  }
  for (; i < columns; ++i, to += 3) {
    to[0] = x[i];
    to[1] = y[i];
    to[2] = z[i];
  }
}

typedef uint8_t Bytes __attribute__((vector_size(16), aligned(1), may_alias));
constexpr int64_t kByteBlock = 16;

// Rows r of 16 bytes at from + r * stride become columns: 16 rows at to + c * to_stride. Four
// rounds that interleave rows i and i + 8 turn the index of a byte by four of its eight bits.
inline void Transpose16x16(const uint8_t* from, int64_t from_stride, uint8_t* to,
                           int64_t to_stride) {
  Bytes rows[kByteBlock], next[kByteBlock];
  for (int64_t i = 0; i < kByteBlock; ++i)
    rows[i] = *reinterpret_cast<const Bytes*>(from + i * from_stride);
  const auto interleave = [](const Bytes* in, Bytes* out) {
    for (int64_t i = 0; i < kByteBlock / 2; ++i) {
      const Bytes a = in[i], b = in[i + kByteBlock / 2];
      out[2 * i] =
          __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      out[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                               14, 30, 15, 31);
    }
  };
  interleave(rows, next);
  interleave(next, rows);
  interleave(rows, next);
  interleave(next, rows);
  for (int64_t i = 0; i < kByteBlock; ++i) *reinterpret_cast<Bytes*>(to + i * to_stride) = rows[i];
}

// to[c * to_stride + r] = from[r * from_stride + c] for r < rows, c < columns, at most a tile.
inline void TransposeBytes(const uint8_t* from, int64_t from_stride, uint8_t* to, int64_t to_stride,
                           int64_t rows, int64_t columns) {
  if (rows == 3 && to_stride == 3) {  // the planes of an image become pixels
    const uint8_t *x = from, *y = from + from_stride, *z = from + 2 * from_stride;
    for (int64_t i = 0; i < columns; ++i, to += 3) {
      to[0] = x[i];
      to[1] = y[i];
      to[2] = z[i];
    }
    return;
  }
  const int64_t whole_rows = rows / kByteBlock * kByteBlock;
  const int64_t whole_columns = columns / kByteBlock * kByteBlock;
  for (int64_t r = 0; r < whole_rows; r += kByteBlock) {
    for (int64_t c = 0; c < whole_columns; c += kByteBlock)
      Transpose16x16(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
  }
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r)
      to[c * to_stride + r] = from[r * from_stride + c];
  }
}

// to[c * to_stride + r] = from[r * from_stride + c] for r < rows, c < columns (both at most kTile).
template <class T>
void TransposeTile(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
                   int64_t columns) {
  if constexpr (sizeof(T) == 1)
    return TransposeBytes(from, from_stride, to, to_stride, rows, columns);
  int64_t done_rows = 0;
  if constexpr (sizeof(T) == 4) {
    if (rows == 3 && to_stride == 3) return Interleave3(from, from_stride, to, columns);
    const int64_t whole_columns = columns / 4 * 4;
    done_rows = rows / 4 * 4;
    const auto block = [&](int64_t r, int64_t c) {
      Transpose4x4(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    };
    // Writes whole lines of the target if its rows are closer, else reads whole lines of the
    // source: rows at multiples of 2 KB evict each other from the cache.
    if ((to_stride < from_stride && from_stride % 512 != 0) || to_stride % 512 == 0) {
      for (int64_t c = 0; c < whole_columns; c += 4) {
        for (int64_t r = 0; r < done_rows; r += 4) block(r, c);
      }
    } else {
      for (int64_t r = 0; r < done_rows; r += 4) {
        for (int64_t c = 0; c < whole_columns; c += 4) block(r, c);
      }
    }
    for (int64_t c = whole_columns; c < columns; ++c) {
      for (int64_t r = 0; r < done_rows; ++r) to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = done_rows; r < rows; ++r) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

}  // namespace

void CopyBytes(const void* from, void* to, int64_t bytes) {
  if (from == to || bytes <= 0) return;
  ParallelFor(bytes, kGrainBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

void FillZeroBytes(void* to, int64_t bytes) {
  if (bytes <= 0) return;
  ParallelFor(bytes, kGrainBytes, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(to) + begin, 0, static_cast<size_t>(end - begin));
  });
}

void FillElements(void* to, int64_t count, const void* value, size_t size) {
  DispatchSize(size, [&]<class T>(T) {
    T element;
    std::memcpy(&element, value, sizeof(T));
    T* out = static_cast<T*>(to);
    ParallelFor(count, kGrainBytes / static_cast<int64_t>(sizeof(T)),
                [&](int64_t begin, int64_t end) { std::fill(out + begin, out + end, element); });
  });
}

std::vector<int64_t> ContiguousStrides(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride;
  return strides;
}

StridedCopy::StridedCopy(size_t element_size, const std::vector<int64_t>& dims,
                         const std::vector<int64_t>& from_strides,
                         const std::vector<int64_t>& to_strides)
    : element_size_(element_size), empty_(false) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) empty_ = true;
  }
  if (empty_) return;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) continue;
    const Axis axis{dims[i], from_strides[i], to_strides[i]};
    if (!outer_.empty() && outer_.back().from == axis.dim * axis.from &&
        outer_.back().to == axis.dim * axis.to) {
      outer_.back() = {outer_.back().dim * axis.dim, axis.from, axis.to};
    } else {
      outer_.push_back(axis);
    }
  }
  // The axis that is contiguous in the target becomes the innermost one; the order of the others
  // does not matter.
  const auto contiguous =
      std::find_if(outer_.begin(), outer_.end(), [](const Axis& a) { return a.to == 1; });
  if (contiguous != outer_.end()) std::rotate(contiguous, contiguous + 1, outer_.end());
  if (!outer_.empty()) {
    inner_ = outer_.back();
    outer_.pop_back();
  }
  // A transpose: one axis is contiguous in the output and another in the input. Copying by tiles
  // uses each cache line of both completely while it is in the cache.
  if (inner_.to == 1 && inner_.from != 1) {
    auto across =
        std::find_if(outer_.begin(), outer_.end(), [](const Axis& a) { return a.from == 1; });
    if (across != outer_.end()) {
      across_ = *across;
      outer_.erase(across);
      tiled_ = true;
    }
  }
  for (const Axis& axis : outer_) outer_count_ *= axis.dim;
}

// Calls body(from_offset, to_offset, unit) for [begin, end) of outer_count_ * units.
template <class Body>
void StridedCopy::ForEachOuter(int64_t units, int64_t begin, int64_t end, Body&& body) const {
  constexpr size_t kMaxAxes = 32;
  int64_t index[kMaxAxes] = {};
  int64_t from = 0, to = 0, rest = begin / units, unit = begin % units;
  for (size_t i = outer_.size(); i-- > 0;) {
    index[i] = rest % outer_[i].dim;
    rest /= outer_[i].dim;
    from += index[i] * outer_[i].from;
    to += index[i] * outer_[i].to;
  }
  for (int64_t k = begin; k < end; ++k) {
    body(from, to, unit);
    if (++unit < units) continue;
    unit = 0;
    for (size_t i = outer_.size(); i-- > 0;) {
      from += outer_[i].from;
      to += outer_[i].to;
      if (++index[i] < outer_[i].dim) break;
      from -= outer_[i].dim * outer_[i].from;
      to -= outer_[i].dim * outer_[i].to;
      index[i] = 0;
    }
  }
}

template <class T>
void StridedCopy::RunTiled(const T* from, T* to) const {
  constexpr int64_t kSide = kTile<T>;
  const int64_t stripes = (across_.dim + kSide - 1) / kSide;
  const int64_t grain = 1 + kGrainBytes / (kSide * inner_.dim * static_cast<int64_t>(sizeof(T)));
  ParallelFor(outer_count_ * stripes, grain, [&](int64_t begin, int64_t end) {
    ForEachOuter(stripes, begin, end, [&](int64_t f, int64_t t, int64_t stripe) {
      const int64_t column = stripe * kSide, columns = std::min(kSide, across_.dim - column);
      for (int64_t row = 0; row < inner_.dim; row += kSide) {
        TransposeTile(from + f + column + row * inner_.from, inner_.from,
                      to + t + column * across_.to + row, across_.to,
                      std::min(kSide, inner_.dim - row), columns);
      }
    });
  });
}

template <class T>
void StridedCopy::RunTyped(const T* from, T* to) const {
  if (tiled_) return RunTiled(from, to);
  // Long rows are cut into pieces, so that several threads can share even a single row.
  const int64_t piece = 1 << 16, units = (inner_.dim + piece - 1) / piece;
  const int64_t bytes = std::min(piece, inner_.dim) * static_cast<int64_t>(sizeof(T));
  ParallelFor(outer_count_ * units, 1 + kGrainBytes / bytes, [&](int64_t begin, int64_t end) {
    ForEachOuter(units, begin, end, [&](int64_t f, int64_t t, int64_t unit) {
      const int64_t first = unit * piece, count = std::min(piece, inner_.dim - first);
      const T* in = from + f + first * inner_.from;
      T* out = to + t + first * inner_.to;
      if (inner_.from == 1 && inner_.to == 1) {
        std::memcpy(out, in, static_cast<size_t>(count) * sizeof(T));
      } else if (inner_.from == 0 && inner_.to == 1) {
        std::fill_n(out, count, *in);
      } else if (inner_.from == -1 && inner_.to == 1) {
        for (int64_t i = 0; i < count; ++i) out[i] = in[-i];
      } else {
        for (int64_t i = 0; i < count; ++i) out[i * inner_.to] = in[i * inner_.from];
      }
    });
  });
}

void StridedCopy::operator()(const void* from, void* to) const {
  if (empty_) return;
  DispatchSize(element_size_,
               [&]<class T>(T) { RunTyped(static_cast<const T*>(from), static_cast<T*>(to)); });
}

}  // namespace coracle::inline internal
