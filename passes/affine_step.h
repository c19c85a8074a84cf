#pragma once
// Ops that multiply a value by constants and add constants to it. Internal to passes/.

#include <coracle/passes/pass.h>
#include <coracle/passes/value_flow.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// y = factors[c] * x + shifts[c] for the channel c of an element, or for all elements if both have
// one number.
struct AffineStep {
  const OpDesc* op = nullptr;
  std::string x, y;
  std::vector<double> factors, shifts;

  bool IsScalar() const { return factors.size() == 1; }
  bool HasFactor() const;  // whether a factor is not 1
  bool HasShift() const;   // whether a shift is not 0
};

// Which constants a step may have.
struct AffineRules {
  int channel_axis = -1;  // of x; -1: only one number for all elements
  int rank = -1;          // of x; -1: unknown
};

// The op as a step from `x`, one of its inputs: scale, or an elementwise sum, difference, product
// or quotient with a frozen constant of x's dtype that does not broadcast x. nullopt for any other
// op, and for constants that are not finite.
std::optional<AffineStep> AffineStepOf(const OpDesc& op, const std::string& x,
                                       const AffineRules& rules, const BlockDesc& block,
                                       const PassContext& context);

// The step `second` after `first`.
void Append(const AffineStep& second, AffineStep* first);

}  // namespace coracle::inline internal
