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

// Logs a warning for each variable of the program with an error_clip whose gradient is not in
// `grad_to_var`: it will never act. Returns their names.
std::vector<std::string> WarnOfIdleErrorClips(const ProgramDesc& program,
                                              const GradToVar& grad_to_var);

}  // namespace coracle
