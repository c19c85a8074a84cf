#pragma once
// Regularizers: ops that a Setting of a parameter or of an optimizer adds before the update. The
// kinds are l2_decay and l1_decay (Paddle, Caffe), which affect the moments of adaptive optimizers,
// and decoupled_decay (Loshchilov and Hutter 2019), which gives SGDW with sgd and AdamW with adam.
// `coracle help l2_decay` shows the formula.

#include <coracle/framework/ir/fields.h>
#include <coracle/framework/ir/program.h>

#include <functional>
#include <string>
#include <vector>

namespace coracle {

// Weight decay for a ParamAttr or an optimizer: coeff * parameter, or coeff * sign(parameter),
// joins the gradient.
Setting L2DecayRegularizer(double coeff);
Setting L1DecayRegularizer(double coeff);

// What the update of one parameter is appended to, and for what.
struct UpdateContext {
  BlockDesc& block;      // where its ops go, and its temporaries
  ProgramDesc& startup;  // fills new state
  std::string param;
  std::string grad;           // clipped and regularized
  std::string learning_rate;  // a [1] variable; the parameter's multiplier is in it
  bool unit_rate;             // it is the constant 1
};

// Appends to update.block and returns the name of the gradient to update with: update.grad, or a
// new variable. Ops without op_role get the role Optimize.
using RegularizerFunction =
    std::function<std::string(const UpdateContext& update, const Setting& setting)>;

// Makes Settings of that kind known to AppendRegularizer, and to texts and their schemas. An attr
// "coeff" is what a parameter's weight-decay multiplier multiplies. Process-wide and thread-safe;
// throws kAlreadyExists for a kind that is taken.
void RegisterRegularizer(const std::string& kind, FieldTable fields, RegularizerFunction append);
// One whose attrs the function alone knows.
void RegisterRegularizer(const std::string& kind, RegularizerFunction append);
std::vector<std::string> RegularizerKinds();  // sorted
KindsWithFields RegularizerFields();          // in the order of registration

// Throws kInvalidArgument for an unknown kind (naming the nearest known one) and for attrs that its
// table refuses: "l2_decay: coeff must be finite and not negative, got -1".
void CheckRegularizer(const Setting& setting);
// Throws what CheckRegularizer throws, naming the parameter. The attr "coeff" is multiplied by
// `multiplier` (Caffe's decay_mult); the table's range holds for the attr as it is given, so the
// product may be of either sign.
std::string AppendRegularizer(const UpdateContext& update, Setting setting, double multiplier = 1);

// parameter *= 1 - rate * coeff.
void AppendDecoupledDecay(const UpdateContext& update, double coeff);

}  // namespace coracle
