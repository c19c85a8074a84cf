#pragma once
// Regularizers: ops that a Setting of a parameter or an optimizer adds before the update. The kinds
// are l2_decay and l1_decay (Paddle, Caffe), which affect the moments of adaptive optimizers, and
// decoupled_decay (Loshchilov and Hutter 2019), which gives SGDW with sgd and AdamW with adam.
// `coracle help l2_decay` shows the formula.

#include <coracle/framework/ir/fields.h>
#include <coracle/framework/ir/program.h>

#include <functional>
#include <string>
#include <vector>

namespace coracle {

// Weight decay for a ParamAttr or an optimizer: adds coeff * parameter, or coeff * sign(parameter),
// to the gradient.
Setting L2DecayRegularizer(double coeff);
Setting L1DecayRegularizer(double coeff);

// The parameter to update, and where its ops go.
struct UpdateContext {
  BlockDesc& block;      // receives the ops and temporaries
  ProgramDesc& startup;  // initialises new state
  std::string param;
  std::string grad;  // clipped and regularized
  // A [1] variable, with the parameter's multiplier applied.
  std::string learning_rate;
  bool unit_rate;  // the rate is the constant 1
};

// Appends ops to update.block and returns the name of the gradient to update with: update.grad, or
// a new variable. Ops without op_role get the role Optimize.
using RegularizerFunction =
    std::function<std::string(const UpdateContext& update, const Setting& setting)>;

// Registers a kind for AppendRegularizer, texts and their schemas. The weight-decay multiplier of a
// parameter multiplies the attr "coeff". Process-wide and thread-safe; throws kAlreadyExists for a
// kind that is taken.
void RegisterRegularizer(const std::string& kind, FieldTable fields, RegularizerFunction append);
// Registers a kind whose attrs only the function knows.
void RegisterRegularizer(const std::string& kind, RegularizerFunction append);
KindsWithFields RegularizerFields();  // in the order of registration

// Throws kInvalidArgument for an unknown kind (naming the nearest known one) and for attrs that its
// table refuses: "l2_decay: coeff must be finite and not negative, got -1".
void CheckRegularizer(const Setting& setting);
// Throws the errors of CheckRegularizer, naming the parameter. The attr "coeff" is multiplied by
// `multiplier` (Caffe's decay_mult). The table's range applies to the attr as given, so the product
// may have either sign.
std::string AppendRegularizer(const UpdateContext& update, Setting setting, double multiplier = 1);

// Appends parameter *= 1 - rate * coeff.
void AppendDecoupledDecay(const UpdateContext& update, double coeff);

}  // namespace coracle
