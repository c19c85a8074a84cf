#pragma once
// Mixed precision: rewrites a forward program so that its heavy ops compute in float16 or bfloat16.
// The result is an ordinary program with `cast` ops; call before Minimize (gradients of casts give
// float32 gradients of float32 parameters). See docs/mixed_precision.md.
//
// Sources: Paddle 2.1's contrib/mixed_precision (lists, rewriting), apex (levels O0 to O3),
// PyTorch's autocast (ops that want float32).

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/default_ops.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace coracle {

//                      O0   O1                    O2                       O3
// computes in 16 bits  -    white ops and what    all but black ops        all
//                           follows them
// parameters           f32  f32                   f32 (master weights)     16 bits
// norm statistics      f32  f32                   f32                      16 bits
// loss scale, float16  1    dynamic               dynamic                  1
// With master weights a step makes one 16-bit copy of each parameter, for all its uses.
enum class PrecisionLevel { kO0, kO1, kO2, kO3 };

PrecisionLevel ParsePrecisionLevel(const std::string& text);  // "O1"; throws kInvalidArgument

// Op types. White ops compute in 16 bits; black ones in float32. All others (Paddle's gray list
// among them) follow their inputs: float32 where one comes from a black op, else 16 bits where one
// comes from a white op, else they stay as they are.
struct PrecisionLists {
  std::set<std::string> white = {}, black = {};
};
// What the declarations of ops say (OpDef::ComputesIn): Paddle's lists, and to the black ones more
// ops whose results need float32's range or precision (powers, logarithms, norms, losses).
PrecisionLists DefaultPrecisionLists(const OpRegistry& ops = DefaultOps());

struct MixedPrecisionOptions {
  DType dtype = DType::kBFloat16;  // or kFloat16
  PrecisionLevel level = PrecisionLevel::kO1;
  // Op types to move to the white or the black list. At O2 and O3 custom_black stays float32 too.
  std::vector<std::string> custom_white = {}, custom_black = {};
  // Ops that touch one of these variables compute in float32.
  std::vector<std::string> black_vars = {};
  // Variables that keep float32 (a loss, metrics, outputs): what computes them is converted back.
  std::vector<std::string> float32_vars = {};
  // Override the level's choice for O2 and O3: whether parameters are float32, and whether scale,
  // bias and statistics of batch_norm and layer_norm are.
  std::optional<bool> master_weights = {}, float32_norms = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct MixedPrecisionReport {
  int casts = 0;      // ops that were added
  int low_ops = 0;    // ops that compute in 16 bits
  int float_ops = 0;  // ops with float32 inputs that do not
};

// Rewrites `main`, its sub-blocks included, and for parameters of 16 bits `startup`. Each value is
// converted at most once: the result is shared by all readers, those in loops included. Variables
// that are written more than once, or that a sub-block takes or gives, keep their dtype.
//
// Throws kInvalidArgument for a dtype other than the two, an op type in both custom lists, an
// option that contradicts the level, and a program that has gradient or update ops already;
// kNotFound for an unknown op type or variable. `main` is unchanged then.
MixedPrecisionReport DecorateMixedPrecision(ProgramDesc& main, ProgramDesc& startup,
                                            const MixedPrecisionOptions& options = {});

}  // namespace coracle
