#pragma once
// Shared by the ops that assign targets to boxes: random samples, and outputs that grow image
// by image.

#include <coracle/framework/tensor/rng.h>
#include <coracle/operators/detection/boxes.h>
#include <coracle/operators/detection/images.h>
#include <coracle/operators/detection/reals.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace coracle::inline internal {

// A share of a count, rounded down. The product is computed in float: in double, 0.7f * 10 is
// below 7.
inline size_t PartOf(size_t count, float part) {
  return static_cast<size_t>(part * static_cast<float>(count));
}

// Consecutive draws from one stream.
class Draws {
 public:
  Draws(const Workspace& ws, uint64_t stream) : philox_(ws.seed(), stream, ws.step()) {}
  // Keeps `most` of the indices: the first, or each with equal chance (Fisher and Yates).
  void Sample(size_t most, bool at_random, std::vector<int64_t>* indices) {
    if (indices->size() <= most) return;
    for (size_t i = 0; at_random && i < most; ++i) {
      const double unit = philox_.UniformDouble(next_++);
      const auto left = static_cast<double>(indices->size() - i);
      std::swap((*indices)[i], (*indices)[i + static_cast<size_t>(unit * left)]);
    }
    indices->resize(most);
    std::sort(indices->begin(), indices->end());
  }

 private:
  Philox philox_;
  uint64_t next_ = 0;
};

// Rows of an output, appended image by image.
struct GrowingRows {
  std::vector<double> values;
  RowOffsets offsets{0};  // in units of width

  void Add(const Box& box) { values.insert(values.end(), {box.x1, box.y1, box.x2, box.y2}); }
  void EndImage(size_t width) { offsets.push_back(values.size() / width); }
  // A tensor [rows] for a vector, else [rows, width].
  void Write(Workspace& ws, const TensorArg& out, DType dtype, int64_t width) const {
    if (!out) return;
    const auto rows = static_cast<int64_t>(offsets.back());
    const Shape shape = out.shape.rank() == 1 ? Shape{rows} : Shape{rows, width};
    Tensor& to = ResizeOutput(ws, out, dtype, shape);
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kInt32)
        to.data<int32_t>()[i] = static_cast<int32_t>(std::clamp(values[i], -0x1p31, 0x1p31 - 1));
      else
        RealsOut(to).Set(static_cast<int64_t>(i), values[i]);
    }
    ws.OutputLod(out) = {offsets};
  }
};

}  // namespace coracle::inline internal
