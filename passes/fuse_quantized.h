#pragma once
// The parts of the pass fuse_quantized. Internal to passes/.

#include <coracle/framework/op/check/flow_types.h>
#include <coracle/passes/match.h>
#include <coracle/passes/pass.h>
#include <coracle/passes/quantized_form.h>
#include <coracle/passes/value_flow.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle::inline internal {

// Whether the op is a convolution or matrix product that may compute in integers.
bool IsQuantizableProduct(const OpDesc& op);

// The block in which rules fuse ops, and what they know about it.
class QuantizedScene {
 public:
  QuantizedScene(ProgramDesc& program, const PassContext& context);

  ProgramDesc& program() { return program_; }
  BlockDesc& block() { return block_; }
  const BlockDesc& block() const { return block_; }
  const PassContext& context() const { return context_; }
  const OpSpec& SpecOf(const OpDesc& op) const { return context_.ops.Get(op.type()); }
  const ValueFlow& flow() const { return flow_; }

  // The integers of a variable that an affine_dequantize writes; nullptr if there are none.
  const QuantizedValue* Integers(const std::string& var) const { return values_.Find(var); }
  // The same, if one scale greater than 0 serves all of them.
  const QuantizedValue* IntegersOfOneScale(const std::string& var) const;
  // The same, also if each run computes the scale: then its form has only names.
  const QuantizedValue* IntegersOfAnyScale(const std::string& var) const;
  // nullptr for an undeclared variable.
  const VarMeta* Meta(const std::string& var) const;
  // Whether two variables of the given program have one shape in each run, so that neither is
  // broadcast to the other.
  bool HaveSameShape(const std::string& a, const std::string& b) const;
  // The only op that reads a variable that nothing else sees; nullptr if there is no such op.
  const OpDesc* OnlyReader(const std::string& var) const;
  bool IsDone(const OpDesc& op) const { return done_.count(&op) > 0; }

  // A frozen parameter with that value; `of` is the parameter that it was made of.
  std::string AddConstant(const std::string& of, Tensor value);
  // A temporary like `like`, with another type.
  std::string AddTemporary(const std::string& like, DType dtype, const Shape& shape);

  // Replaces `ops`, the last of which is the place, by `made`. "" or the reason why that is not
  // possible: then nothing changes.
  std::string Replace(const std::vector<const OpDesc*>& ops, const std::vector<OpDesc>& made);
  void Apply() { rewrites_.Apply(); }

 private:
  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  const ValueFlow flow_;
  const Matcher matcher_;
  const QuantizedValues values_;
  FlowTypes types_;
  mutable std::vector<std::unique_ptr<FlowTypes>> trials_;  // for dims that only a run knows
  Rewrites rewrites_;
  std::unordered_set<const OpDesc*> done_;
};

// A product of matrices: an fc, mul, matmul or matmul_v2.
struct MatrixProduct {
  std::string x, y;
  bool trans_x = false, trans_y = false;
  float alpha = 1;
  int rows = 0;  // the number of leading dims of X that are rows; 0 or -1: all but the last
};
// nullopt for attrs that quantised products do not have.
std::optional<MatrixProduct> MatrixProductOf(const QuantizedScene& scene, const OpDesc& op);
// The attrs that a quantised product has for the activation of an fc; none without one.
AttrList FcActivation(const QuantizedScene& scene, const OpDesc& fc);

// What follows an op that computes in integers: ops that only read the result so far, one after the
// other, and that the op can do itself.
struct QuantizedEpilogue {
  std::vector<const OpDesc*> ops;     // that it absorbs
  std::string bias;                   // one float32 for each column
  std::string residual;               // float32, of the result's shape
  AttrList activation;                // fuse_activation, fuse_alpha, fuse_beta
  std::optional<QuantizedForm> form;  // of an int8 or uint8 result; otherwise it is float32
  std::string result;

  bool HasActivation() const { return !activation.empty(); }
};

// Which of these an op can do.
struct EpilogueKinds {
  int64_t bias_columns = -1;  // an elementwise_add of that many numbers along the last axis
  bool residual = false;
  bool activation = true;
};

// Continues `so_far`, which may have a bias, a residual or an activation already, from its result.
void ExtendEpilogue(const QuantizedScene& scene, const EpilogueKinds& kinds,
                    QuantizedEpilogue& so_far);
// Sets the attrs and slots of activation and result.
void SetEpilogue(QuantizedScene& scene, const QuantizedEpilogue& epilogue, OpDesc& op);
// Also the slot Residual, in integers if it has them.
void SetResidual(const QuantizedScene& scene, const QuantizedEpilogue& epilogue, OpDesc& op);

// Rules. Each returns "" if it replaced the op, or the reason why the op stays as it is.
std::string QuantizeConvolution(QuantizedScene& scene, const OpDesc& op);
std::string QuantizeProduct(QuantizedScene& scene, const OpDesc& op);
std::string QuantizeSum(QuantizedScene& scene, const OpDesc& op);  // or elementwise product
std::string QuantizeConcat(QuantizedScene& scene, const OpDesc& op);
std::string QuantizePool(QuantizedScene& scene, const OpDesc& op);
// Replaces affine_quantize of a function of quantised values.
std::string QuantizeFunction(QuantizedScene& scene, const OpDesc& quantize);

}  // namespace coracle::inline internal
