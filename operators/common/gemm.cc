#include <coracle/framework/base/error.h>
#include <coracle/framework/base/parallel.h>
#include <coracle/operators/common/gemm.h>

#ifdef CORACLE_ONEDNN
#include <dnnl.h>
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

}  // namespace

template <class T>
Gemm<T> MakeGemm(const GemmSpec& spec, KernelMode mode) {
#ifdef CORACLE_ONEDNN
  if constexpr (std::is_same_v<T, float>) {
    if (mode == KernelMode::kAuto && spec.m > 0 && spec.n > 0 && spec.k > 0) {
      return [spec](const float* a, const float* b, float* c) {
        dnnl_status_t status =
            dnnl_sgemm(spec.transpose_a ? 'T' : 'N', spec.transpose_b ? 'T' : 'N', spec.m, spec.n,
                       spec.k, spec.alpha, a, spec.transpose_a ? spec.m : spec.k, b,
                       spec.transpose_b ? spec.k : spec.n, spec.beta, c, spec.n);
        if (status != dnnl_success) throw InternalError("dnnl_sgemm failed");
      };
    }
  }
#endif
  (void)mode;
  return [spec](const T* a, const T* b, T* c) { ReferenceGemm(spec, a, b, c); };
}

template Gemm<float> MakeGemm<float>(const GemmSpec&, KernelMode);
template Gemm<double> MakeGemm<double>(const GemmSpec&, KernelMode);

}  // namespace coracle
