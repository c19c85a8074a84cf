#pragma once
// The windows of convolutions and pools on the spatial dims of an input.

#include <coracle/convert/onnx/import/node_context.h>

#include <string>
#include <vector>

namespace coracle::onnx {

// A number for each spatial dim.
struct Windows {
  std::vector<int64_t> kernel, strides, dilations, before, after;
  bool ceil = false;  // the number of windows is rounded up
  bool same = false;  // SAME_UPPER of unknown dims: Paddle's SAME

  size_t rank() const { return kernel.size(); }
  int64_t Extent(size_t i) const { return dilations[i] * (kernel[i] - 1) + 1; }
  // Windows along dim i of `in` elements; the last one does not begin in the padding at the end.
  int64_t Count(size_t i, int64_t in) const;
  bool IsDilated() const;
};

// Reads attributes kernel_shape (or `kernel`, from a filter), strides, dilations, pads and
// auto_pad, for an input [N, C, spatial...]. auto_pad's paddings follow from the spatial dims.
Windows WindowsOf(NodeContext& node, const Shape& input, const std::vector<int64_t>& kernel = {});

// {before, after} for each dim, the format of Paddle's `paddings`.
std::vector<int32_t> Interleaved(const std::vector<int64_t>& before,
                                 const std::vector<int64_t>& after);

// x [N, C, L] as [N, C, 1, L], and back.
Variable WithHeight(NodeContext& node, const Variable& x);
Variable WithoutHeight(NodeContext& node, const Variable& x);
// The windows for the input with the added height.
Windows WithHeight(Windows windows);

// Without the windows of a pool `out` of x that begin in the padding after x. Paddle has them if
// ceil_mode is set.
Variable WithoutLateWindows(NodeContext& node, Variable out, const Variable& x,
                            const Windows& windows);

}  // namespace coracle::onnx
