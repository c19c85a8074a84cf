#pragma once
// Clips. An error clip limits the gradient of a chosen variable inside backward, before the next
// gradient op reads it. A gradient clip limits the gradients of parameters between backward and
// the update.

#include <coracle/backward/backward.h>
#include <coracle/framework/ir/fields.h>

#include <functional>
#include <string>
#include <vector>

namespace coracle {

// --- error clips ---
// VarDesc::SetErrorClip gives one to a variable. <coracle/framework/ir/var.h> has the attr classes.

// The callback for AppendBackward: if the op appended last completes the gradient of a variable
// (looked up recursively) that has an error_clip, appends the clip's ops. A gradient that is summed
// from several contributions is clipped once, after the sum.
void ErrorClipCallback(BlockDesc& block, const GradToVar& grad_to_var);

// The same, and counts what the clips do: see CountErrorClip. `startup` must live as long as
// the callback.
BackwardCallback CountingErrorClipCallback(ProgramDesc& startup);

// The action of a callback at each such gradient; `var` is its variable. ErrorClipCallback is
// AppendErrorClips with clip.AppendClipOp(block, gradient).
using AppendErrorClip = std::function<void(BlockDesc& block, const BaseErrorClipAttr& clip,
                                           const std::string& gradient, const std::string& var)>;
void AppendErrorClips(BlockDesc& block, const GradToVar& grad_to_var,
                      const AppendErrorClip& append);

// Calls `clip`, which appends the clip of the gradient of `var`, and adds ops around it that count
// how often it acts and how much it removes. The persistable float64 [3] variable
// "error_clip.VAR.statistics" of the root block holds the counts, as described by the op
// clip_statistics. Each run of the block counts, and all blocks and values of a variable share the
// counts. Selected rows are not counted.
void CountErrorClip(BlockDesc& block, ProgramDesc& startup, const std::string& gradient,
                    const std::string& var, const std::function<void()>& clip);

// Calls `clip`, which appends a clip of the gradient with that name; may append other ops before
// and after it.
using AroundErrorClip =
    std::function<void(const std::string& gradient, const std::function<void()>& clip)>;

// Under loss scaling a gradient is `scale` (a float32 [1] variable) times the true gradient.
// Appends ops with the effect of clipping the true gradient: for the classes of framework/ir/var.h
// the thresholds are multiplied by the scale; for other classes the gradient is divided by the
// scale before the clip's ops and multiplied after them, in float32. Before that, `finite` (a
// persistable bool [1]) becomes false unless the gradient is finite, because clipping would turn an
// overflow into an ordinary number. `around` is called to append the clip itself.
void AppendScaledErrorClip(BlockDesc& block, const BaseErrorClipAttr& clip,
                           const std::string& gradient, const std::string& scale,
                           const std::string& finite, const AroundErrorClip& around);

// Logs a warning for each variable of the program with an error_clip whose gradient is not in
// `grad_to_var`, since that clip will never act. Returns the names of these variables.
std::vector<std::string> WarnOfIdleErrorClips(const ProgramDesc& program,
                                              const GradToVar& grad_to_var);

// --- gradient clips ---
// A parameter's clip is a Setting (its own, or its optimizer's), made by the functions below. The
// clips of a step are appended together, as ordinary ops of the role Optimize.

// Selects how a clip acts if the norm is a nan or infinite.
enum class NonFinite {
  // A nan norm makes all elements nan; an infinite norm makes them 0, and infinite ones nan.
  kPropagate,
  kError,  // the run ends with an error
  kZero,   // the gradients become zeros
  kSkip,   // the whole step is skipped: no update, no decay, no step of the schedule
};

struct GradientNormOptions {
  // p >= 1 of the norm (sum |g|^p)^(1/p), or infinity for the largest |g|.
  double norm_type = 2;
  NonFinite non_finite = NonFinite::kPropagate;
};

inline constexpr char kDefaultClipGroup[] = "default_group";

// Limits every element to [min, max]; a nan stays a nan.
Setting ClipGradByValue(double max, double min);
inline Setting ClipGradByValue(double max) { return ClipGradByValue(max, -max); }
// Multiplies a gradient whose norm n exceeds clip_norm by clip_norm / n; other gradients stay the
// same to the bit.
Setting ClipGradByNorm(double clip_norm, const GradientNormOptions& options = {});
// The same with the norm of all gradients of the group together, and one factor for all of them.
Setting ClipGradByGlobalNorm(double clip_norm, const std::string& group_name = kDefaultClipGroup,
                             const GradientNormOptions& options = {});
// Adaptive clip (Brock et al. 2021, "High-Performance Large-Scale Image Recognition Without
// Normalization"): each slice g along `axis` (a row if axis is 0) is clipped separately. If its
// norm exceeds clip_factor max(norm of the same slice of the parameter, epsilon), it is scaled down
// to that. Norms are L2 norms. A gradient of rank 0 or 1 is a single slice.
struct AdaptiveClipOptions {
  double clip_factor = 0.01;
  double epsilon = 1e-3;
  int32_t axis = 0;
};
Setting AdaptiveGradientClip(const AdaptiveClipOptions& options = {});
// Disables clipping for the parameter, even if the optimizer has a clip (as need_clip = False does
// in Paddle).
Setting NoGradientClip();

// Throws kInvalidArgument for a setting out of range (limits must be positive and finite, min at
// most max, p at least 1), and kNotFound for an unknown kind.
void CheckGradientClip(const Setting& clip);

// One gradient to clip.
struct ClipMember {
  ParamAndGrad pair;
  Setting clip;
};

struct ClippedGradients {
  std::vector<std::string> grads;   // in the order of the members
  std::vector<std::string> guards;  // bool [1]: false if the step must be skipped
};

// Appends the clips to `block`. Clipped gradients are new variables <param>@GRAD@CLIPPED. Selected
// rows stay selected rows and count with duplicate rows merged.
//
// Clips by norm keep persistable variables, which `startup` fills with 0 and which can be fetched:
// gradient_clip.<group>.norm (the norm before the clip, float [n]), .steps (the number of steps,
// int64 [1]) and .clipped_steps (the number of steps in which the norm exceeded clip_norm, int64
// [n]). For a clip by global norm, n is 1. Clips by norm with the default
// options share one variable for each limit and dtype: <group> is "by_norm", and n is the number of
// gradients, in the order of the members. A clip by norm whose norm_type is not 2 or whose
// non_finite is not propagate has its own: <group> is the parameter, and n is 1. If the prefix is
// taken in the program, "_1" is appended.
//
// Throws the errors of CheckGradientClip, and kInvalidArgument for members of one group that differ
// in setting or dtype.
ClippedGradients AppendGradientClips(BlockDesc& block, ProgramDesc& startup,
                                     const std::vector<ClipMember>& members);

// Counts the effect of the clips that AppendGradientClips has appended for these members, except
// clips by norm, which keep statistics of their own. For each kind, a persistable float64 [3]
// variable "gradient_clip.KIND.statistics" of the root block (made unique by "_1") holds the
// counts, as described by the op clip_statistics. Selected rows are not counted.
void CountGradientClips(BlockDesc& block, ProgramDesc& startup,
                        const std::vector<ClipMember>& members,
                        const std::vector<std::string>& clipped);

// Registers a custom kind: `append` gets all members of that kind at once. Process-wide; throws
// kAlreadyExists for a kind that is taken.
using GradientClipFn = std::function<ClippedGradients(BlockDesc& block, ProgramDesc& startup,
                                                      const std::vector<ClipMember>& members)>;
void RegisterGradientClip(const std::string& kind, FieldTable fields, GradientClipFn append);
// Registers a kind whose attrs only `append` knows.
void RegisterGradientClip(const std::string& kind, GradientClipFn append);
// All kinds with the fields that texts may set, in the order of registration.
KindsWithFields GradientClipFields();

}  // namespace coracle
