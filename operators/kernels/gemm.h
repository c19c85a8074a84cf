#pragma once
// C[m, n] = alpha * op(A) op(B) + beta * C, row-major, op(A) of size [m, k] and op(B) of
// size [k, n].

#include <coracle/framework/op/op_def.h>
#include <coracle/operators/kernels/simd.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

namespace coracle::inline internal {

struct GemmSpec {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;  // A is stored as [k, m]
  bool transpose_b = false;  // B is stored as [n, k]
  double alpha = 1;
  double beta = 0;  // 0: C is not read
};

template <class T>
using Gemm = std::function<void(const T* a, const T* b, T* c)>;

// A gemm for one size: the reference loop or, for float and kAuto in a build with oneDNN, oneDNN's.
template <class T>
Gemm<T> MakeGemm(const GemmSpec& spec, KernelMode mode);

// Runs a gemm whose size is known only at run time. Does not allocate.
template <class T>
void RunGemm(const GemmSpec& spec, KernelMode mode, const T* a, const T* b, T* c);
extern template void RunGemm<float>(const GemmSpec&, KernelMode, const float*, const float*,
                                    float*);
extern template void RunGemm<double>(const GemmSpec&, KernelMode, const double*, const double*,
                                     double*);

// Operations on the elements of C while they are in the cache: adds the bias, which has a number
// for each column, to each row, and applies the activation.
struct GemmFinish {
  const float* bias = nullptr;
  simd::UnaryLoop activation = nullptr;
  simd::Params params = {};
};
struct GemmTask {
  GemmSpec spec;
  const float *a, *b;
  float* c;
  GemmFinish finish = {};
};
// Computes independent products like RunGemm (kAuto), in one parallel region.
void RunGemms(std::initializer_list<GemmTask> tasks);

// A loop nest over many gemms, outermost dim first. Steps are in matrices. A step of 0 repeats a
// matrix of A or B; for C, it sums over that dim.
struct GemmBatch {
  int rank = 0;
  int64_t dims[Shape::kMaxRank];
  int64_t a_step[Shape::kMaxRank], b_step[Shape::kMaxRank], c_step[Shape::kMaxRank];
};
// The gemms of a batch, with spec.beta = 0. As for a single gemm, only oneDNN's results may depend
// on the number of threads.
template <class T>
Gemm<T> MakeBatchGemm(const GemmSpec& spec, const GemmBatch& batch, KernelMode mode);

// In bfloat16: products are summed in float32, and the result is rounded once. Empty if oneDNN has
// no native instructions for it (it requires AVX-512) or is off, for empty matrices, for spec.beta
// != 0, and if C is a sum over a batch dim; the op is then computed in float32.
template <>
Gemm<bfloat16> MakeBatchGemm<bfloat16>(const GemmSpec& spec, const GemmBatch& batch,
                                       KernelMode mode);
template <>
Gemm<bfloat16> MakeGemm<bfloat16>(const GemmSpec& spec, KernelMode mode);

extern template Gemm<float> MakeGemm<float>(const GemmSpec&, KernelMode);
extern template Gemm<double> MakeGemm<double>(const GemmSpec&, KernelMode);
extern template Gemm<float> MakeBatchGemm<float>(const GemmSpec&, const GemmBatch&, KernelMode);
extern template Gemm<double> MakeBatchGemm<double>(const GemmSpec&, const GemmBatch&, KernelMode);

}  // namespace coracle::inline internal
