#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/blocked_product.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/kernels/matrix_tile.h>
#include <coracle/operators/kernels/onednn_scope.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <type_traits>

#ifdef CORACLE_ONEDNN
#include <dnnl.h>
#endif

namespace coracle::inline internal {
namespace {

// One thread sums each row of C in the order of k, so the result does not depend on threads. With
// beta 0, C is not read and may hold nans.
template <class T>
void ReferenceGemm(const GemmSpec& s, const T* a, const T* b, T* c) {
  const T alpha = static_cast<T>(s.alpha), beta = static_cast<T>(s.beta);
  ParallelFor(s.m, 1 + 65536 / (1 + s.n * s.k), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = c + i * s.n;
      for (int64_t j = 0; j < s.n; ++j) row[j] = s.beta == 0 ? T(0) : beta * row[j];
      for (int64_t p = 0; p < s.k; ++p) {
        const T x = alpha * (s.transpose_a ? a[p * s.m + i] : a[i * s.k + p]);
        if (s.transpose_b) {
          for (int64_t j = 0; j < s.n; ++j) row[j] += x * b[j * s.k + p];
        } else {
          for (int64_t j = 0; j < s.n; ++j) row[j] += x * b[p * s.n + j];
        }
      }
    }
  });
}

// A block of C.
struct GemmBlock {
  int64_t row = 0, column = 0, rows = 0, columns = 0;
};

void Finish(const GemmTask& task, const GemmBlock& block) {
  static const simd::BinaryLoop add =
      simd::FindBinary(simd::Binary::kAdd, simd::Form::kVectorVector);
  const GemmFinish& finish = task.finish;
  if (!finish.bias && !finish.activation) return;
  for (int64_t i = block.row; i < block.row + block.rows; ++i) {
    float* row = task.c + i * task.spec.n + block.column;
    if (finish.bias) add(row, finish.bias + block.column, row, block.columns);
    if (finish.activation) finish.activation(row, row, block.columns, finish.params);
  }
}

#ifdef CORACLE_ONEDNN
void OneDnnGemm(const GemmSpec& s, const GemmBlock& block, const float* a, const float* b,
                float* c) {
  if (block.rows == 0 || block.columns == 0) return;
  a += s.transpose_a ? block.row : block.row * s.k;
  b += s.transpose_b ? block.column * s.k : block.column;
  c += block.row * s.n + block.column;
  onednn::GemmScope inside;
  dnnl_status_t status =
      dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', block.rows, block.columns,
                 s.k, static_cast<float>(s.alpha), a, s.transpose_a ? s.m : s.k, b,
                 s.transpose_b ? s.k : s.n, static_cast<float>(s.beta), c, s.n);
  if (status == dnnl_out_of_memory) {
    throw OutOfMemory(
        fmt::format("a product of [{}, {}] and [{}, {}]: oneDNN could not allocate its buffers",
                    block.rows, s.k, s.k, block.columns));
  }
  if (status != dnnl_success)
    throw InternalError(fmt::format("dnnl_sgemm failed with status {}", static_cast<int>(status)));
}

// Whether BlockedProduct is faster than oneDNN's kernels. With AVX2, these read A and B in place
// unless C is large. If A is transposed and rows of A or B are a multiple of 2 KiB apart, the rows
// share few cache sets, and their rate falls to between two fifths and nine tenths.
bool UsesBlocks(const GemmSpec& s, const GemmBlock& block) {
  constexpr int64_t kLanesOfAvx2 = 8;
  if (!s.transpose_a || VectorLanes() != kLanesOfAvx2) return false;
  if (block.rows < 128 || block.columns < 64 || s.k < 64) return false;
  // Above this size, oneDNN copies (nocopy_checker_avx2 in its gemm).
  if (1.0 / static_cast<double>(block.rows) + 1.0 / static_cast<double>(block.columns) < 0.0038)
    return false;
  return s.m % 512 == 0 || s.n % 512 == 0;
}

void BlockedGemm(const GemmTask& task, const GemmBlock& block) {
  if (block.rows == 0 || block.columns == 0) return;
  const GemmSpec& s = task.spec;
  BlockedProduct product;
  product.m = block.rows;
  product.n = block.columns;
  product.k = s.k;
  product.a = task.a + block.row;
  product.a_row = s.m;
  product.b_row = s.transpose_b ? 1 : s.n;
  product.b_step = s.transpose_b ? s.k : 1;
  product.b = task.b + block.column * product.b_step;
  product.c_row = s.n;
  product.c = task.c + block.row * s.n + block.column;
  product.alpha = static_cast<float>(s.alpha);
  product.beta = static_cast<float>(s.beta);
  RunBlockedProduct(product, [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
    Finish(task, {block.row + row, block.column + column, rows, columns});
  });
}

// The tile that oneDNN's kernels for AVX-512 compute at a time; other block sizes would waste part
// of a tile.
constexpr int64_t kRowUnit = 8, kColumnUnit = 48;

void Cut(int64_t size, int64_t unit, int64_t parts, int64_t i, int64_t* begin, int64_t* length) {
  const int64_t units = (size + unit - 1) / unit;
  *begin = std::min(size, units * i / parts * unit);
  *length = std::min(size, units * (i + 1) / parts * unit) - *begin;
}

// C cut into rows * columns blocks, one for each thread; uses the grid whose largest block
// is cheapest.
class GemmGrid {
 public:
  GemmGrid(const GemmSpec& s, int64_t parts) : m_(s.m), n_(s.n) {
    double least = 0;
    for (int64_t rows = 1; rows <= parts; ++rows) {
      const int64_t columns = parts / rows;
      const double cost = Cost(s.k, rows, columns);
      if (rows > 1 && cost >= least) continue;
      least = cost;
      rows_ = rows;
      columns_ = columns;
    }
  }

  int64_t size() const { return rows_ * columns_; }
  GemmBlock Block(int64_t i) const {
    GemmBlock block;
    Cut(m_, kRowUnit, rows_, i / columns_, &block.row, &block.rows);
    Cut(n_, kColumnUnit, columns_, i % columns_, &block.column, &block.columns);
    return block;
  }

 private:
  // The cost of the largest block: its products, plus 32 for each element of A and B that it reads.
  double Cost(int64_t k, int64_t rows, int64_t columns) const {
    const double height = static_cast<double>(Units(m_, kRowUnit, rows) * kRowUnit);
    const double width = static_cast<double>(Units(n_, kColumnUnit, columns) * kColumnUnit);
    return static_cast<double>(k) * (height * width + 32 * (height + width));
  }
  // Size of the largest of `parts` parts, in units.
  static int64_t Units(int64_t size, int64_t unit, int64_t parts) {
    return ((size + unit - 1) / unit + parts - 1) / parts;
  }

  int64_t m_, n_, rows_ = 1, columns_ = 1;
};

// Calls f for strips of columns that stay in the second-level cache until they are finished. It is
// used for blocks so large that finishing a whole one would read it from memory again. Each strip
// copies A again (`rows` * k elements), which pays with few products per element.
template <class F>
void ForStrips(const GemmTask& task, const GemmBlock& block, F&& f) {
  constexpr int64_t kStripFloats = 128 * 1024, kLeastWidth = 192, kFar = 512 * 1024;
  const bool finishes = task.finish.bias || task.finish.activation;
  if (!finishes || task.spec.k > 512 || block.rows * block.columns < kFar) return f(block);
  const int64_t width = std::max(kLeastWidth, kStripFloats / block.rows);
  const int64_t strips = std::max<int64_t>(1, block.columns / width);
  for (int64_t i = 0; i < strips; ++i) {
    GemmBlock strip = block;
    Cut(block.columns, kColumnUnit, strips, i, &strip.column, &strip.columns);
    strip.column += block.column;
    f(strip);
  }
}

#endif

double Operations(const GemmSpec& s) {
  return static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

// Held during many small products: blocking signals for each product would cost more.
#ifdef CORACLE_ONEDNN
using BatchScope = onednn::GemmScope;
#else
struct BatchScope {};
#endif

// Offsets of the matrices of A, B and C for gemm `index` of the batch.
struct BatchAt {
  int64_t a = 0, b = 0, c = 0;
};
BatchAt Locate(const GemmBatch& batch, int64_t index) {
  BatchAt at;
  for (int i = batch.rank - 1; i >= 0; --i) {
    const int64_t step = index % batch.dims[i];
    index /= batch.dims[i];
    at.a += step * batch.a_step[i];
    at.b += step * batch.b_step[i];
    at.c += step * batch.c_step[i];
  }
  return at;
}

}  // namespace

void RunGemms(std::initializer_list<GemmTask> tasks) {
#ifdef CORACLE_ONEDNN
  const auto is_empty = [](const GemmSpec& s) { return s.m == 0 || s.n == 0 || s.k == 0; };
  const auto grid_of = [](const GemmSpec& s) {
    // For a small gemm, one thread is faster than waking others.
    const auto most = static_cast<int64_t>(1 + Operations(s) / 300e3);
    return GemmGrid(s, std::min<int64_t>(NumThreads(), most));
  };
  const auto run = [](const GemmTask& task, const GemmBlock& block) {
    if (UsesBlocks(task.spec, block)) return BlockedGemm(task, block);
    ForStrips(task, block, [&](const GemmBlock& strip) {
      OneDnnGemm(task.spec, strip, task.a, task.b, task.c);
      Finish(task, strip);
    });
  };
  // A unit is a block of each product, so that threads get about equal parts of every product.
  const auto count = static_cast<int64_t>(tasks.size());
  int64_t units = 1;
  for (const GemmTask& task : tasks) {
    if (!is_empty(task.spec)) units = std::max(units, grid_of(task.spec).size());
  }
  ParallelFor(units * count, count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const GemmTask& task = tasks.begin()[i % count];
      const GemmBlock all = {0, 0, task.spec.m, task.spec.n};
      if (is_empty(task.spec)) {
        if (i >= count) continue;
        ReferenceGemm(task.spec, task.a, task.b, task.c);
        Finish(task, all);
      } else if (end - begin == units * count) {
        if (i < count) run(task, all);
      } else if (const GemmGrid grid = grid_of(task.spec); i / count < grid.size()) {
        run(task, grid.Block(i / count));
      }
    }
  });
#else
  for (const GemmTask& task : tasks) {
    ReferenceGemm(task.spec, task.a, task.b, task.c);
    Finish(task, {0, 0, task.spec.m, task.spec.n});
  }
#endif
}

template <class T>
void RunGemm(const GemmSpec& spec, KernelMode mode, const T* a, const T* b, T* c) {
  if constexpr (std::is_same_v<T, float>) {
    if (mode == KernelMode::kAuto) return RunGemms({{spec, a, b, c}});
  }
  ReferenceGemm(spec, a, b, c);
}

template <class T>
Gemm<T> MakeGemm(const GemmSpec& spec, KernelMode mode) {
  return [spec, mode](const T* a, const T* b, T* c) { RunGemm(spec, mode, a, b, c); };
}

template <class T>
Gemm<T> MakeBatchGemm(const GemmSpec& spec, const GemmBatch& batch, KernelMode mode) {
  int64_t count = 1, outputs = 1;
  for (int i = 0; i < batch.rank; ++i) {
    count *= batch.dims[i];
    if (batch.c_step[i] != 0) outputs *= batch.dims[i];
  }
  // With a c_step of 0, several gemms of the batch add to one C.
  if (count == 1 && batch.rank == 0) return MakeGemm<T>(spec, mode);
  GemmSpec one = spec;
  const bool sums = outputs != count || count == 0;
  one.beta = sums ? 1 : 0;
  const Gemm<T> gemm = MakeGemm<T>(one, mode);
  const int64_t a_size = spec.m * spec.k, b_size = spec.k * spec.n, c_size = spec.m * spec.n;
  // Many small gemms run in parallel, each on one thread; a large one uses all threads. Gemms that
  // add to one C run one after the other.
  const bool side_by_side = !sums && count >= 4 && Operations(spec) < 8e6;
  const int64_t grain =
      side_by_side ? 1 + static_cast<int64_t>(65536 / (1 + Operations(spec))) : count;
  return [=](const T* a, const T* b, T* c) {
    if (sums) std::fill_n(c, outputs * c_size, T(0));
    ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
      std::optional<BatchScope> inside;
      if (std::is_same_v<T, float> && mode == KernelMode::kAuto) inside.emplace();
      for (int64_t i = begin; i < end; ++i) {
        const BatchAt at = Locate(batch, i);
        gemm(a + at.a * a_size, b + at.b * b_size, c + at.c * c_size);
      }
    });
  };
}

template void RunGemm<float>(const GemmSpec&, KernelMode, const float*, const float*, float*);
template void RunGemm<double>(const GemmSpec&, KernelMode, const double*, const double*, double*);
template Gemm<float> MakeGemm<float>(const GemmSpec&, KernelMode);
template Gemm<double> MakeGemm<double>(const GemmSpec&, KernelMode);
template Gemm<float> MakeBatchGemm<float>(const GemmSpec&, const GemmBatch&, KernelMode);
template Gemm<double> MakeBatchGemm<double>(const GemmSpec&, const GemmBatch&, KernelMode);
template Gemm<complex64> MakeBatchGemm<complex64>(const GemmSpec&, const GemmBatch&, KernelMode);
template Gemm<complex128> MakeBatchGemm<complex128>(const GemmSpec&, const GemmBatch&, KernelMode);

}  // namespace coracle::inline internal
