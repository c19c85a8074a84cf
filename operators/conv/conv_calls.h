#pragma once
// Calls of oneDNN for the parts of a convolution. Include only from .cc files under
// `#ifdef CORACLE_ONEDNN`.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/conv_parts.h>
#include <coracle/operators/kernels/onednn.h>
#include <coracle/operators/kernels/onednn_scope.h>

#include <cstring>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Whether oneDNN has only its reference loop for this case. It is no faster than ours, and in
// bfloat16 slower than the float32 kernels.
template <class PrimitiveDesc>
bool IsPlainLoop(const PrimitiveDesc& pd) {
  return std::strstr(pd.impl_info_str(), "ref") != nullptr;
}

// Whether oneDNN 2.6 may add a residual with an SSE instruction that crashes if the address is not
// a multiple of 16, as in depthwise convolutions of 21 channels.
template <class PrimitiveDesc>
bool MayAddUnaligned(const PrimitiveDesc& pd) {
  return std::strstr(pd.impl_info_str(), "sse41") != nullptr;
}

// One primitive for each part of a convolution. All must have the same implementation and filter
// layout, since they share one copy of the filter.
struct PartCalls {
  struct One {
    onednn::Call call;
    dnnl::memory::desc scratchpad_desc;
    int64_t input, output;  // offset of the part in elements
    int64_t outputs;        // elements of the part
    TensorArg scratchpad = {};
  };
  std::vector<One> parts;
  dnnl::memory::desc filter = dnnl::memory::desc();
  std::string implementation;

  template <class PrimitiveDesc>
  void Add(const ConvPart& part, const PrimitiveDesc& pd, const dnnl::memory::desc& its_filter,
           onednn::Call call) {
    if (parts.empty()) {
      filter = its_filter;
      implementation = pd.impl_info_str();
    } else if (filter != its_filter || implementation != pd.impl_info_str()) {
      throw dnnl::error(dnnl_unimplemented, "the parts of a convolution have different types");
    }
    call.Arg(DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc());
    parts.push_back({call, pd.scratchpad_desc(), part.input, part.output, part.g.OutputNumel()});
  }

  // Called when oneDNN has made all primitives, because scratch memory that a failed attempt
  // reserved would stay in the plan.
  void ReserveScratch(const PrepareContext& ctx) {
    for (One& part : parts) part.scratchpad = onednn::ScratchFor(ctx, part.scratchpad_desc);
  }

  // Calls f(part, its index) for each part, from several threads.
  template <class F>
  void ForEach(F&& f) const {
    ParallelFor(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(parts[static_cast<size_t>(i)], i);
    });
  }
};

// Returns make(parts), or make(the whole) if oneDNN cannot compute all parts in the same way.
template <class Make>
Kernel MakeOfParts(const ConvGeometry& g, const std::vector<ConvPart>& parts, Make&& make) {
  const onednn::Scope inside;
  if (parts.size() > 1) {
    try {
      return make(parts);
    } catch (const dnnl::error&) {
    }
  }
  return make(SplitImages(g, 1));
}

// The address of element `index`.
inline const void* Element(const void* data, DType dtype, int64_t index) {
  return static_cast<const char*>(data) + static_cast<int64_t>(ByteSize(dtype, {index}));
}
inline void* Element(void* data, DType dtype, int64_t index) {
  return static_cast<char*>(data) + static_cast<int64_t>(ByteSize(dtype, {index}));
}

}  // namespace coracle::inline internal
