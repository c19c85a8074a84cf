#pragma once
// Shared by the ops that pool regions of interest (RoIs): declarations, shape rule, and the image
// of each RoI.

#include <coracle/framework/op/op_def.h>
#include <coracle/operators/detection/boxes.h>
#include <coracle/operators/detection/images.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// Constraints C1 to C3, which gradient ops repeat.
void DeclareRoiConstraints(OpDef& def);
// Slots X and ROIs, and a slot for counts of RoIs unless it is nullptr.
void DeclareRois(OpDef& def, const char* counts_slot);
// Attrs spatial_scale, pooled_height and pooled_width.
void DeclarePooling(OpDef& def);
// Checks C1 to C3; returns the shape [R, channels, pooled height, pooled width].
Shape RequireRois(InferContext& ctx, const char* counts_slot, int64_t channels);

// The shape rule of a gradient op: Out@GRAD must have Out's shape and X's dtype (constraint `id`),
// and X@GRAD has the type of X.
void InferRoiGrad(InferContext& ctx, std::string_view id, const Shape& out);

// The image of each RoI.
class RoiImages {
 public:
  RoiImages(const PrepareContext& ctx, const char* counts_slot, const char* maps_slot = "X")
      : images_(ctx, "ROIs", counts_slot, "C3"), count_(ctx.Input(maps_slot).shape[0]) {}
  std::vector<int64_t> operator()(Workspace& ws) const;

 private:
  ImagesArg images_;
  int64_t count_;
};

// A position clamped to [0, size] and truncated to a whole number; 0 for nan.
inline int64_t ClipPlace(double v, int64_t size) {
  return v > 0 ? static_cast<int64_t>(std::min(v, static_cast<double>(size))) : 0;
}

// Weights of the four elements around a position of a plane.
struct PlaneWeights {
  int64_t y[2] = {}, x[2] = {};
  double wy[2] = {}, wx[2] = {};

  // Calls visit(element of the plane, weight).
  template <class Visit>
  void ForEach(int64_t columns, const Visit& visit) const {
    for (int i : {0, 1}) {
      for (int j : {0, 1}) visit(y[i] * columns + x[j], wy[i] * wx[j]);
    }
  }
};
// REQUIRES: 0 <= y <= rows - 1, and likewise for x.
PlaneWeights BilinearAt(double y, double x, int64_t rows, int64_t columns);

}  // namespace coracle::inline internal
