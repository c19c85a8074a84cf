#include <coracle/framework/base/error.h>
#include <coracle/framework/base/parallel.h>
#include <coracle/operators/common/gemm.h>
#include <coracle/operators/common/onednn_scope.h>

#include <algorithm>

#ifdef CORACLE_ONEDNN
#include <dnnl.h>
#ifndef CORACLE_STD_THREADS
#include <omp.h>
#endif
#endif

namespace coracle {
namespace {

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

#ifdef CORACLE_ONEDNN
// Waking the other threads costs more than a small gemm takes on one.
class OneThreadIf {
 public:
#ifdef CORACLE_STD_THREADS
  explicit OneThreadIf(bool) {}
#else
  explicit OneThreadIf(bool one) : before_(one ? omp_get_max_threads() : 1) {
    if (before_ > 1) omp_set_num_threads(1);
  }
  ~OneThreadIf() {
    if (before_ > 1) omp_set_num_threads(before_);
  }
  OneThreadIf(const OneThreadIf&) = delete;
  OneThreadIf& operator=(const OneThreadIf&) = delete;

 private:
  int before_;
#endif
};

void OneDnnGemm(const GemmSpec& s, bool small, const float* a, const float* b, float* c) {
  OneThreadIf one_thread(small);
  onednn::Scope inside;
  dnnl_status_t status =
      dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, s.alpha, a,
                 s.transpose_a ? s.m : s.k, b, s.transpose_b ? s.k : s.n, s.beta, c, s.n);
  if (status != dnnl_success) throw InternalError("dnnl_sgemm failed");
}
#endif

double Operations(const GemmSpec& s) {
  return static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

// The matrices of A, B and C for gemm `index` of the batch.
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

template <class T>
Gemm<T> MakeGemm(const GemmSpec& spec, KernelMode mode) {
#ifdef CORACLE_ONEDNN
  if constexpr (std::is_same_v<T, float>) {
    if (mode == KernelMode::kAuto && spec.m > 0 && spec.n > 0 && spec.k > 0) {
      const bool small = Operations(spec) < 300e3;
      return [spec, small](const float* a, const float* b, float* c) {
        OneDnnGemm(spec, small, a, b, c);
      };
    }
  }
#endif
  (void)mode;
  return [spec](const T* a, const T* b, T* c) { ReferenceGemm(spec, a, b, c); };
}

template <class T>
Gemm<T> MakeBatchGemm(const GemmSpec& spec, const GemmBatch& batch, KernelMode mode) {
  int64_t count = 1, outputs = 1;
  for (int i = 0; i < batch.rank; ++i) {
    count *= batch.dims[i];
    if (batch.c_step[i] != 0) outputs *= batch.dims[i];
  }
  if (count == 1 && batch.rank == 0) return MakeGemm<T>(spec, mode);
  GemmSpec one = spec;
  const bool sums = outputs != count || count == 0;
  one.beta = sums ? 1.0f : 0.0f;
  const Gemm<T> gemm = MakeGemm<T>(one, mode);
  const int64_t a_size = spec.m * spec.k, b_size = spec.k * spec.n, c_size = spec.m * spec.n;
  // Many small gemms run side by side; each large one uses all threads.
  const bool side_by_side = !sums && count >= 4 && Operations(spec) < 8e6;
  const int64_t grain =
      side_by_side ? 1 + static_cast<int64_t>(65536 / (1 + Operations(spec))) : count;
  return [=](const T* a, const T* b, T* c) {
    if (sums) std::fill_n(c, outputs * c_size, T(0));
    ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const BatchAt at = Locate(batch, i);
        gemm(a + at.a * a_size, b + at.b * b_size, c + at.c * c_size);
      }
    });
  };
}

template Gemm<float> MakeGemm<float>(const GemmSpec&, KernelMode);
template Gemm<double> MakeGemm<double>(const GemmSpec&, KernelMode);
template Gemm<float> MakeBatchGemm<float>(const GemmSpec&, const GemmBatch&, KernelMode);
template Gemm<double> MakeBatchGemm<double>(const GemmSpec&, const GemmBatch&, KernelMode);

}  // namespace coracle
