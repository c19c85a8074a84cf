#pragma once
// Equalisation: moves factors between the channels of an activation and the weights around it. The
// float program computes the same, up to rounding.

#include <coracle/quantize/calibration.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// A change of the float program that is tried.
struct EqualizationChoice {
  Equalization kind = Equalization::kNone;
  double alpha = 0.5;  // of kSmooth

  std::string ToString() const;  // "none", "cross_layer", "smooth 0.5"
};

// The choices that the option allows, beginning with kNone if it is among them.
std::vector<EqualizationChoice> ChoicesOf(Equalization option);

// Applies a choice wherever the channels of an activation come from a layer_norm, or from a product
// and perhaps relu or leaky_relu, and only products read it. Divides channel j by f[j], and
// multiplies the weights that read it:
//
//   kCrossLayer: f = sqrt(r1 / r2), where r1 and r2 are the largest absolute weights that write and
//     read the channel; repeated until all ranges are equal. Only after products.
//   kSmooth: f = max|x|^alpha / max|w|^(1 - alpha), with the magnitudes of the samples.
//
// Returns the number of activations that it changed.
int Equalize(const EqualizationChoice& choice, const std::vector<QuantLayer>& products,
             const Calibration& calibration, FloatModel* model);

}  // namespace coracle::inline internal
