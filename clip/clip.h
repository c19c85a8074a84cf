#pragma once
// Gradient clip: between backward and the update, the gradients of parameters are limited. A
// parameter's clip is a Setting (its own, or its optimizer's), made by the functions below; the
// clips of a step are appended all together, as ordinary ops of the role Optimize.

#include <coracle/backward/backward.h>
#include <coracle/framework/ir/fields.h>

#include <functional>
#include <string>
#include <vector>

namespace coracle {

// Error clip: shrinks the gradient of a chosen variable inside backward, before the
// next gradient op reads it. Set it with VarDesc::SetErrorClip; the attr classes
// are in <coracle/framework/ir/var.h>.

// The callback for AppendBackward: when the op appended last completes the gradient of a variable
// (looked up recursively) that has an error_clip, the clip's ops are appended behind it. A gradient
// that is summed from several contributions is clipped once, after the sum.
void ErrorClipCallback(BlockDesc& block, const GradToVar& grad_to_var);

// The same, and counts what the clips do: see CountErrorClip. `startup` lives as long.
BackwardCallback CountingErrorClipCallback(ProgramDesc& startup);

// What a callback does at each such gradient, that of `var`. ErrorClipCallback is AppendErrorClips
// with clip.AppendClipOp(block, gradient).
using AppendErrorClip = std::function<void(BlockDesc& block, const BaseErrorClipAttr& clip,
                                           const std::string& gradient, const std::string& var)>;
void AppendErrorClips(BlockDesc& block, const GradToVar& grad_to_var,
                      const AppendErrorClip& append);

// Appends what `clip` appends to the block for the gradient of `var`, and around it what counts how
// often it acts and how much it takes away: into the persistable float64 [3] variable
// "error_clip.VAR.statistics" of the root block, as the op clip_statistics says. It counts each run
// of the block, and all blocks and values of a variable together. Selected rows are not counted.
void CountErrorClip(BlockDesc& block, ProgramDesc& startup, const std::string& gradient,
                    const std::string& var, const std::function<void()>& clip);

// Calls `clip`, which appends a clip of the gradient of that name, and may append other ops before
// and after it.
using AroundErrorClip =
    std::function<void(const std::string& gradient, const std::function<void()>& clip)>;

// Under loss scaling a gradient is `scale` (a float32 [1] variable) times the true gradient.
// Appends ops that have the effect of clipping the true one: for the classes of framework/ir/var.h
// the thresholds are multiplied by the scale; for other classes the clip's ops stand between a
// division and a multiplication in float32. Before that, `finite` (a persistable bool [1]) becomes
// false unless the gradient is finite, because clipping would turn an overflow into an ordinary
// number. `around` is called to append the clip itself.
void AppendScaledErrorClip(BlockDesc& block, const BaseErrorClipAttr& clip,
                           const std::string& gradient, const std::string& scale,
                           const std::string& finite, const AroundErrorClip& around);

// Logs a warning for each variable of the program with an error_clip whose gradient is not in
// `grad_to_var`: it will never act. Returns their names.
std::vector<std::string> WarnOfIdleErrorClips(const ProgramDesc& program,
                                              const GradToVar& grad_to_var);

// What a clip does when the norm that it looks at is a nan or infinite.
enum class NonFinite {
  kPropagate,  // a nan norm makes nans; an infinite one zeros, and nans of infinite elements
  kError,      // the run ends with an error
  kZero,       // the gradients become zeros
  kSkip,       // the whole step is left out: no update, no decay, the schedule stands still
};

struct GradientNormOptions {
  double norm_type = 2;  // p >= 1 of the norm (sum |g|^p)^(1/p), or infinity: the largest |g|
  NonFinite non_finite = NonFinite::kPropagate;
};

inline constexpr char kDefaultClipGroup[] = "default_group";

// Every element into [min, max]; a nan stays one.
Setting ClipGradByValue(double max, double min);
inline Setting ClipGradByValue(double max) { return ClipGradByValue(max, -max); }
// A gradient whose norm n exceeds clip_norm is multiplied by clip_norm / n, others stay as they
// are, to the bit.
Setting ClipGradByNorm(double clip_norm, const GradientNormOptions& options = {});
// The same with the norm of all gradients of the group together and one factor for all of them.
Setting ClipGradByGlobalNorm(double clip_norm, const std::string& group_name = kDefaultClipGroup,
                             const GradientNormOptions& options = {});
// Adaptive clip (Brock et al. 2021, "High-Performance Large-Scale Image Recognition Without
// Normalization"): by itself each slice g along `axis` (a row with 0), whose norm exceeds
// clip_factor max(norm of the same slice of the parameter, epsilon), is scaled down to that. L2
// norms. Gradients of rank 0 and 1 are one slice.
struct AdaptiveClipOptions {
  double clip_factor = 0.01;
  double epsilon = 1e-3;
  int32_t axis = 0;
};
Setting AdaptiveGradientClip(const AdaptiveClipOptions& options = {});
// None, whatever the optimizer's is (Paddle's need_clip = False).
Setting NoGradientClip();

// Throws kInvalidArgument for a setting out of range (limits must be positive and finite, min at
// most max, p at least 1), kNotFound for an unknown kind.
void CheckGradientClip(const Setting& clip);

// One gradient to clip.
struct ClipMember {
  ParamAndGrad pair;
  Setting clip;
};

struct ClippedGradients {
  std::vector<std::string> grads;   // in the order of the members
  std::vector<std::string> guards;  // bool [1]: false where the step is to be skipped
};

// Appends the clips to `block`. Clipped gradients are new variables <param>@GRAD@CLIPPED.
// Selected rows stay such and count with duplicates merged.
//
// Clips by norm keep persistable variables, which `startup` fills with 0 and which can be fetched:
// gradient_clip.<group>.norm (the norm before the clip, float [n]), .steps (how many there were,
// int64 [1]) and .clipped_steps (in how many the norm exceeded clip_norm, int64 [n]). Of a clip by
// global norm, n is 1. Of clips by norm, <group> is "by_norm" and n the number of gradients that
// have one limit and dtype, in the order of the members; <group> is the parameter, and n is 1,
// where norm_type is not 2 or non_finite not propagate. The prefix is unique in the program: "_1"
// follows where it was taken.
//
// Throws what CheckGradientClip throws, and kInvalidArgument for members of one group that differ
// in setting or dtype.
ClippedGradients AppendGradientClips(BlockDesc& block, ProgramDesc& startup,
                                     const std::vector<ClipMember>& members);

// Counts what the clips that AppendGradientClips has appended for these members do, those by norm
// excepted, which keep statistics of their own: for each kind a persistable float64 [3] variable
// "gradient_clip.KIND.statistics" of the root block (made unique by "_1"), as the op
// clip_statistics says. Selected rows are not counted.
void CountGradientClips(BlockDesc& block, ProgramDesc& startup,
                        const std::vector<ClipMember>& members,
                        const std::vector<std::string>& clipped);

// A kind of one's own: `append` gets all members of that kind at once. Process-wide; throws
// kAlreadyExists for a kind that is taken.
using GradientClipFn = std::function<ClippedGradients(BlockDesc& block, ProgramDesc& startup,
                                                      const std::vector<ClipMember>& members)>;
void RegisterGradientClip(const std::string& kind, FieldTable fields, GradientClipFn append);
// One whose attrs `append` alone knows.
void RegisterGradientClip(const std::string& kind, GradientClipFn append);
// All kinds with what texts may give them, in the order of registration.
KindsWithFields GradientClipFields();

}  // namespace coracle
