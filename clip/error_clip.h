#pragma once
// Error clip: shrinks the gradient of a chosen variable inside backward, before the next gradient
// op reads it. Set it with VarDesc::SetErrorClip; the attr classes are in
// <coracle/framework/ir/training_attr.h>.

#include <coracle/backward/backward.h>

namespace coracle {

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

// Called with what appends a clip to the gradient of that name: appends it, and more if it likes.
using AroundErrorClip =
    std::function<void(const std::string& gradient, const std::function<void()>& clip)>;

// Under loss scaling a gradient is `scale` (a float32 [1] variable) times the true one. Appends
// what clips it as the clip clips the true one: thresholds times the scale for the classes of
// training_attr.h, else the clip's ops between a division and a multiplication in float32. Before
// that, `finite` (a persistable bool [1]) becomes false unless the gradient is finite: an overflow
// would leave the clip as a number like others. The clip itself goes through `around`.
void AppendScaledErrorClip(BlockDesc& block, const BaseErrorClipAttr& clip,
                           const std::string& gradient, const std::string& scale,
                           const std::string& finite, const AroundErrorClip& around);

// Logs a warning for each variable of the program with an error_clip whose gradient is not in
// `grad_to_var`: it will never act. Returns their names.
std::vector<std::string> WarnOfIdleErrorClips(const ProgramDesc& program,
                                              const GradToVar& grad_to_var);

}  // namespace coracle
