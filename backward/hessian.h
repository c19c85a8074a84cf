#pragma once
// Second derivatives of a scalar: the whole Hessian, or its product with a vector. Both are made of
// gradients of gradients (Gradients, twice) and are ordinary ops of the program. Calls whose
// gradient is derived are replaced by their ops first (InlineDerivedCalls), and stay so.

#include <coracle/backward/backward.h>

#include <string>
#include <vector>

namespace coracle {

struct HessianOptions {
  // Variables that no gradient flows into, of either order.
  std::vector<std::string> no_grad_set = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

// Appends d2y / dx dx for each x of xs, and returns the names of the variables that hold them: of
// shape x.shape + x.shape, element [i, j] (i and j over the elements of x) being the derivative of
// dy / dx[i] by x[j]. "" for an x that y does not depend on; zeros for one on which it depends
// linearly. Derivatives by two different xs are not made.
//
// The ops that depend on the row are appended once for each element of x: meant for some thousands
// of elements at most.
//
// Throws kInvalidArgument for a y of more than one element, and for an x whose shape is not known
// when the program is built or has more than half of Shape::kMaxRank dimensions; otherwise as
// Gradients (kUnimplemented where an op on the path lacks a rule of second order). The program is
// then as it was (but see AppendBackward).
std::vector<std::string> Hessian(const Variable& y, const std::vector<Variable>& xs,
                                 const HessianOptions& options = {});

// Appends the product of the Hessian of y by all of xs with the vector that v holds, v[k] being the
// part that belongs to xs[k], and returns the names of the parts of the product: result[k] has the
// shape of xs[k] and is the sum over j of d2y / dxs[k] dxs[j] times v[j]. "" for an x that y does
// not depend on. v counts as constant, also where it is computed from xs. Costs about twice what
// the gradient costs.
//
// Throws kInvalidArgument for a y of more than one element, for as many v as not xs, and for a v of
// another shape or dtype than its x; otherwise as Gradients. The program is then as it was (but
// see AppendBackward).
std::vector<std::string> HessianVectorProduct(const Variable& y, const std::vector<Variable>& xs,
                                              const std::vector<Variable>& v,
                                              const HessianOptions& options = {});

}  // namespace coracle
