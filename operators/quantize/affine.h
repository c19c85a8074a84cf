#pragma once
// Integers q with a scale s and a zero point z stand for the numbers s (q - z). One scale and zero
// point serve a whole tensor, an index of one axis, or a block of elements along that axis.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/tensor.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace coracle::inline internal {

// Which scale (or zero point) belongs to which element of X = [outer, dim, inner].
struct AffineSteps {
  AffineSteps() = default;
  // `steps`: the shape of the scales. `axis` counts from the end if it is negative.
  AffineSteps(const Shape& x, const Shape& steps, int64_t axis, int64_t block_size);

  int64_t At(int64_t o, int64_t a, int64_t i) const {
    if (count == 1) return 0;
    return block == 0 ? a : (o * blocks + a / block) * inner + i;
  }
  // Visits elements [begin, end) of X in runs: visit(first element, elements, step, each). The
  // elements of a run share the step or, with `each`, have successive steps.
  template <class Visit>
  void ForEachRun(int64_t begin, int64_t end, const Visit& visit) const {
    int64_t n = 0;
    for (int64_t at = begin; at < end; at += n) {
      n = end - at;
      if (count == 1) return visit(at, n, int64_t{0}, false);
      const int64_t i = at % inner, row = at / inner, a = row % dim, o = row / dim;
      if (inner > 1) {
        n = std::min(n, inner - i);
        visit(at, n, At(o, a, i), block > 0);
      } else if (block == 0) {
        n = std::min(n, dim - a);
        visit(at, n, a, true);
      } else {
        n = std::min(n, std::min(dim - a, block - a % block));
        visit(at, n, At(o, a, 0), false);
      }
    }
  }

  int64_t outer = 1, dim = 1, inner = 1;
  int64_t count = 1;              // of scales
  int64_t block = 0, blocks = 0;  // elements of a block, and blocks along the axis; 0: no blocks
};

// Declares the slots Scale and ZeroPoint, the attrs axis and block_size, and C1 to C4.
void DeclareAffineSteps(OpDef& def, std::string_view integers);
// Checks C1 to C4. `integers`: the dtype of the quantised tensor.
void RequireAffineSteps(const InferContext& ctx, DType integers);

// A function that returns element i of floats of that dtype.
using RealReader = double (*)(const void* data, int64_t i);
RealReader FindRealReader(DType dtype);

// The scales and zero points of an op as a kernel reads them.
class AffineReader {
 public:
  explicit AffineReader(const PrepareContext& ctx);

  double Scale(Workspace& ws, int64_t o, int64_t a, int64_t i) const {
    return read_scale_(ws.Data<const void>(scale_), scale_steps_.At(o, a, i));
  }
  int64_t ZeroPoint(Workspace& ws, int64_t o, int64_t a, int64_t i) const {
    return zero_ ? read_zero_(ws.Data<const void>(zero_), zero_steps_.At(o, a, i)) : 0;
  }
  // The steps of the slot with more of them.
  const AffineSteps& steps() const {
    return zero_steps_.count > scale_steps_.count ? zero_steps_ : scale_steps_;
  }
  // Writes steps().count scales and zero points, which must be of 8 bits.
  void Expand(Workspace& ws, float* scales, int32_t* zeros) const;

 private:
  TensorArg scale_, zero_;
  AffineSteps scale_steps_, zero_steps_;
  RealReader read_scale_ = nullptr;
  int64_t (*read_zero_)(const void*, int64_t) = nullptr;
};

// --- SIMD loops, Q = int8_t or uint8_t ---

// The range of the integers that are written.
struct IntegerRange {
  int32_t least, most;
  bool away = false;  // whether ties go away from 0, instead of to the even integer
};

// q = clamp(round(x / scale) + zero); nan becomes range.least. `each`: element i has
// scales[i] and zeros[i]; otherwise all have scales[0] and zeros[0].
template <class Q>
void QuantizeSimd(const float* x, int64_t n, const float* scales, const int32_t* zeros, bool each,
                  IntegerRange range, Q* q);
// x = (q - zero) scale.
template <class Q>
void DequantizeSimd(const Q* q, int64_t n, const float* scales, const int32_t* zeros, bool each,
                    float* x);

}  // namespace coracle::inline internal
