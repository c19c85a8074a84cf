#pragma once
// The activation that a convolution applies to its sums in inference programs: attrs
// fuse_activation, fuse_alpha and fuse_beta, as in Paddle's conv2d.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/operators/kernels/simd.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// The op that computes the same activation.
struct FusedActivation {
  std::string type;
  AttrList attrs;
  bool reads_out;  // whether its gradient op reads the output instead of the input
};

// The op for fuse_activation = name with fuse_alpha and fuse_beta. REQUIRES: name is a value of the
// attr and not empty.
FusedActivation ActivationOpOf(const std::string& name, float alpha, float beta);

// The inverse: the attrs of a convolution that applies this op to its sums; nullopt if it cannot.
std::optional<AttrList> FusedAttrsOf(const OpDesc& activation);

// Declares the attrs.
void DeclareFusedActivation(OpDef& def);

// The gradient of the sums, which the activation is applied to. It reads the op's Output, or the
// sums, which are then recomputed by the op with these inputs and attrs.
Variable GradOfSums(GradientContext& g, const SlotList& inputs, const AttrList& attrs);

// The activation of a prepared op, ready to run.
class ConvActivation {
 public:
  ConvActivation() = default;  // none
  explicit ConvActivation(const PrepareContext& ctx);
  explicit operator bool() const { return row_ >= 0; }

  // x[i] = act(x[i]), by the formulas of the activation family.
  void Apply(float* x, int64_t n) const;
  void Apply(double* x, int64_t n) const;
  // Applies the activation with the widest vectors of the machine.
  void ApplyFast(float* x, int64_t n) const;

  // The name of the attr: "" for none.
  const char* name() const;
  float alpha() const { return params_[0]; }  // fuse_alpha

 private:
  int row_ = -1;
  float params_[3] = {0, 0, 0};
  simd::UnaryLoop loop_ = nullptr;
};

}  // namespace coracle::inline internal
