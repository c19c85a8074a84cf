#pragma once
// Kernels that repeat a tensor along its axes, for expand, tile and related ops.

#include <coracle/framework/op/op_def.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/tensor/strided_sum.h>

#include <utility>
#include <vector>

namespace coracle::inline internal {

// Computes out = x, with dims of 1 broadcast to the dims of out, and repeated along out's
// leading dims.
// REQUIRES: the shapes match.
inline Kernel BroadcastKernel(const TensorArg& x, const TensorArg& out) {
  if (out.numel == 0) return [](Workspace&) {};
  const std::vector<int64_t> own = ContiguousStrides(x.shape.ToVector());
  const int lead = out.shape.rank() - x.shape.rank();
  std::vector<int64_t> strides;
  for (int i = 0; i < out.shape.rank(); ++i) {
    const bool repeated = i < lead || x.shape[i - lead] == 1;
    strides.push_back(repeated ? 0 : own[static_cast<size_t>(i - lead)]);
  }
  const std::vector<int64_t> dims = out.shape.ToVector();
  const StridedCopy copy(SizeOf(x.dtype), dims, strides, ContiguousStrides(dims));
  return [=](Workspace& ws) { copy(ws.Data<const void>(x), ws.Data<void>(out)); };
}

// For an empty sum: dx is zero, whether it has elements or not.
inline Kernel ZeroKernel(const TensorArg& dx) {
  const int64_t bytes = dx.nbytes();
  return [=](Workspace& ws) { FillZeroBytes(ws.Data<void>(dx), bytes); };
}

// dx = the sum of dout over the axes along which BroadcastKernel repeats.
template <class T>
Kernel BroadcastGradKernel(const TensorArg& dout, const TensorArg& dx) {
  if (dout.numel == 0) return ZeroKernel(dx);
  const std::vector<int64_t> strides = ContiguousStrides(dout.shape.ToVector());
  const int lead = dout.shape.rank() - dx.shape.rank();
  std::vector<SumAxis> kept, summed;
  for (int i = 0; i < dout.shape.rank(); ++i) {
    const SumAxis axis{dout.shape[i], strides[static_cast<size_t>(i)]};
    (i < lead || dx.shape[i - lead] == 1 ? summed : kept).push_back(axis);
  }
  const StridedSum sum(std::move(kept), std::move(summed));
  return [=](Workspace& ws) { sum(ws.Data<const T>(dout), ws.Data<T>(dx)); };
}

// Out as pairs of axes [repeat, dim], one pair for each of its dimensions.
struct TileAxes {
  std::vector<int64_t> dims, x_strides, out_strides;
};

inline TileAxes PairAxes(const Shape& x, const Shape& out) {
  const std::vector<int64_t> x_strides = ContiguousStrides(x.ToVector());
  const std::vector<int64_t> out_strides = ContiguousStrides(out.ToVector());
  TileAxes axes;
  for (int i = 0; i < out.rank(); ++i) {
    const int from = i - (out.rank() - x.rank());
    const int64_t dim = from < 0 ? 1 : x[from], stride = out_strides[static_cast<size_t>(i)];
    axes.dims.insert(axes.dims.end(), {out[i] / dim, dim});
    axes.x_strides.insert(axes.x_strides.end(),
                          {0, from < 0 ? 0 : x_strides[static_cast<size_t>(from)]});
    axes.out_strides.insert(axes.out_strides.end(), {stride * dim, stride});
  }
  return axes;
}

// out = as many copies of x along each axis as fit. REQUIRES: the dims of out are multiples of x's.
inline Kernel TileKernel(const TensorArg& x, const TensorArg& out) {
  if (out.numel == 0) return [](Workspace&) {};
  const TileAxes axes = PairAxes(x.shape, out.shape);
  const StridedCopy copy(SizeOf(x.dtype), axes.dims, axes.x_strides, axes.out_strides);
  return [=](Workspace& ws) { copy(ws.Data<const void>(x), ws.Data<void>(out)); };
}

// dx = the sum of dout over the copies of TileKernel.
template <class T>
Kernel TileGradKernel(const TensorArg& dout, const TensorArg& dx) {
  if (dout.numel == 0) return ZeroKernel(dx);
  const TileAxes axes = PairAxes(dx.shape, dout.shape);
  std::vector<SumAxis> kept, summed;
  for (size_t i = 0; i < axes.dims.size(); ++i)
    (i % 2 == 0 ? summed : kept).push_back({axes.dims[i], axes.out_strides[i]});
  const StridedSum sum(std::move(kept), std::move(summed));
  return [=](Workspace& ws) { sum(ws.Data<const T>(dout), ws.Data<T>(dx)); };
}

}  // namespace coracle::inline internal
