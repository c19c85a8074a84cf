#include <coracle/operators/kernels/gemm.h>

#ifdef CORACLE_ONEDNN
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/bfloat16_products.h>
#include <coracle/operators/kernels/onednn.h>
#include <coracle/operators/kernels/onednn_scope.h>

#include <algorithm>
#include <cstring>
#include <vector>
#endif

namespace coracle::inline internal {

#ifdef CORACLE_ONEDNN
namespace {

using dnnl::memory;

// Describes a matrix [rows, cols] for each index of the batch; a step of 0 repeats it. It is the
// upper left part of a stored matrix, which may be larger and transposed.
struct Stored {
  int64_t rows = 0, cols = 0;
  bool transposed = false;
};
memory::desc Operand(const GemmBatch& batch, const int64_t* step, const Stored& all, int64_t rows,
                     int64_t cols) {
  memory::dims dims, strides;
  for (int i = 0; i < batch.rank; ++i) {
    dims.push_back(step[i] == 0 ? 1 : batch.dims[i]);
    strides.push_back(step[i] == 0 ? all.rows * all.cols : step[i] * all.rows * all.cols);
  }
  dims.insert(dims.end(), {rows, cols});
  if (all.transposed)
    strides.insert(strides.end(), {1, all.rows});
  else
    strides.insert(strides.end(), {all.cols, 1});
  return {dims, memory::data_type::bf16, strides};
}

// The rows of C that one thread computes, for every matrix of the batch.
struct RowsCall {
  onednn::Call call;
  int64_t a, c;       // offsets of the part in A and C, in elements
  size_t scratchpad;  // bytes
};

// Scratch memory of the thread, which lives as long as the thread.
void* ThreadScratchpad(size_t bytes) {
  thread_local std::vector<char> memory;
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
}

std::vector<RowsCall> MakeRowsCalls(const GemmSpec& s, const GemmBatch& batch) {
  const onednn::Scope inside;
  const Stored a_all{s.m, s.k, s.transpose_a}, b_all{s.k, s.n, s.transpose_b}, c_all{s.m, s.n};
  double products = static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  for (int i = 0; i < batch.rank; ++i) products *= static_cast<double>(batch.dims[i]);
  constexpr int64_t kUnit = 16;
  const int64_t units = (s.m + kUnit - 1) / kUnit;
  const auto parts = static_cast<int64_t>(std::min(
      {1 + products / 1e6, static_cast<double>(NumThreads()), static_cast<double>(units)}));
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.alpha != 1) attr.set_output_scales(0, {static_cast<float>(s.alpha)});
  std::vector<RowsCall> calls;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = units * i / parts * kUnit;
    const int64_t rows = std::min(s.m, units * (i + 1) / parts * kUnit) - begin;
    const auto a = Operand(batch, batch.a_step, a_all, rows, s.k);
    const auto b = Operand(batch, batch.b_step, b_all, s.k, s.n);
    const auto c = Operand(batch, batch.c_step, c_all, rows, s.n);
    const dnnl::matmul::primitive_desc pd({a, b, c}, attr, onednn::Engine());
    // oneDNN's plain loops in bfloat16 are slower than the float32 kernel with conversions.
    if (std::strstr(pd.impl_info_str(), "ref")) return {};
    onednn::Call call{dnnl::matmul(pd)};
    call.Arg(DNNL_ARG_SRC, a).Arg(DNNL_ARG_WEIGHTS, b).Arg(DNNL_ARG_DST, c);
    call.Arg(DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc());
    calls.push_back(
        {call, s.transpose_a ? begin : begin * s.k, begin * s.n, pd.scratchpad_desc().get_size()});
  }
  return calls;
}

bool IsSupported(const GemmSpec& s, const GemmBatch& batch) {
  bool fits = s.m > 0 && s.n > 0 && s.k > 0 && s.beta == 0;
  for (int i = 0; i < batch.rank; ++i) fits &= batch.dims[i] > 0 && batch.c_step[i] != 0;
  return fits;
}

}  // namespace

template <>
Gemm<bfloat16> MakeBatchGemm<bfloat16>(const GemmSpec& s, const GemmBatch& batch, KernelMode mode) {
  if (mode != KernelMode::kAuto || !IsSupported(s, batch) || !BFloat16ProductsPay()) return {};
  try {
    const std::vector<RowsCall> calls = MakeRowsCalls(s, batch);
    if (calls.empty()) return {};
    return [calls](const bfloat16* x, const bfloat16* y, bfloat16* out) {
      ParallelFor(static_cast<int64_t>(calls.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const RowsCall& rows = calls[static_cast<size_t>(i)];
          rows.call.Run({x + rows.a, y, out + rows.c, ThreadScratchpad(rows.scratchpad)});
        }
      });
    };
  } catch (const dnnl::error&) {
    return {};
  }
}

#else

template <>
Gemm<bfloat16> MakeBatchGemm<bfloat16>(const GemmSpec&, const GemmBatch&, KernelMode) {
  return {};
}

#endif

template <>
Gemm<bfloat16> MakeGemm<bfloat16>(const GemmSpec& spec, KernelMode mode) {
  return MakeBatchGemm<bfloat16>(spec, GemmBatch(), mode);
}

}  // namespace coracle::inline internal
