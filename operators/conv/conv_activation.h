#pragma once
// The activation that a convolution applies to its sums, in inference programs: attrs
// fuse_activation, fuse_alpha and fuse_beta, as Paddle's conv2d has them.

#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/simd.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle {

// What the attrs say of the op that does the same.
struct FusedActivation {
  std::string type;  // of the op
  AttrList attrs;    // of the op
  bool reads_out;    // whether its gradient op reads the op's output, or its input
};

// The op that fuse_activation = name with fuse_alpha, fuse_beta stands for. REQUIRES: name is one
// of the attr's values and not empty.
FusedActivation ActivationOpOf(const std::string& name, float alpha, float beta);

// The other way: the attrs of a convolution that applies this op to its sums; nullopt if none do.
std::optional<AttrList> FusedAttrsOf(const OpDesc& activation);

// Declares the attrs.
void DeclareFusedActivation(OpDef& def);

// The gradient with respect to what the activation is applied to. It reads the op's Output, or the
// sums, which the op of these inputs and attrs then computes again.
Variable GradOfSums(GradientContext& g, const SlotList& inputs, const AttrList& attrs);

// The activation of an op that is being prepared, ready to run.
class ConvActivation {
 public:
  ConvActivation() = default;  // none
  explicit ConvActivation(const PrepareContext& ctx);
  explicit operator bool() const { return row_ >= 0; }

  // x[i] = act(x[i]), by the formulas of the activation family.
  void Apply(float* x, int64_t n) const;
  void Apply(double* x, int64_t n) const;
  // The same in the widest vectors.
  void ApplyFast(float* x, int64_t n) const;

  // The name of the attr: "" for none.
  const char* name() const;
  float alpha() const { return params_[0]; }  // fuse_alpha

 private:
  int row_ = -1;
  float params_[3] = {0, 0, 0};
  simd::UnaryLoop loop_ = nullptr;
};

}  // namespace coracle
