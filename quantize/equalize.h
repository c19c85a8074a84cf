#pragma once
// Equalisation: moves factors between the channels of an activation and the weights around it. The
// float program computes the same, up to rounding.

#include <coracle/quantize/calibration.h>

#include <map>
#include <string>
#include <vector>

namespace coracle::inline internal {

// A change of the float program that is tried.
struct EqualizationChoice {
  Equalization kind = Equalization::kNone;
  double alpha = 0.5;  // of kSmooth

  std::string ToString() const;  // "none", "cross_layer", "smooth 0.5"
  bool operator==(const EqualizationChoice&) const = default;
};

// Choices by the activation whose channels they divide. Other activations stay as they are.
using EqualizationPlan = std::map<std::string, EqualizationChoice>;
// "none", "smooth 0.5", "3 of smooth 0.5, 1 of cross_layer".
std::string ToString(const EqualizationPlan& plan);

// The choices that the option allows, beginning with kNone if it is among them.
std::vector<EqualizationChoice> ChoicesOf(Equalization option);

// The same choice for all activations that it can change: where the channels come from a
// layer_norm, or from a product and perhaps relu or leaky_relu, and only products read it. Divides
// channel j by f[j], and multiplies the weights that read it:
//
//   kCrossLayer: f = sqrt(r1 / r2), where r1 and r2 are the largest absolute weights that write and
//     read the channel; repeated until all ranges are equal. Only after products.
//   kSmooth: f = max|x|^alpha / max|w|^(1 - alpha), with the magnitudes of the samples.
//
EqualizationPlan PlanOf(const EqualizationChoice& choice, const std::vector<QuantLayer>& products,
                        const Calibration& calibration, const FloatModel& model);

// Applies the choices. The results stay the same, up to rounding.
void Equalize(const EqualizationPlan& plan, const std::vector<QuantLayer>& products,
              const Calibration& calibration, FloatModel* model);

}  // namespace coracle::inline internal
