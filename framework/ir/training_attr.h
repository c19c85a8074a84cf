#pragma once
// What a variable carries for training and Paddle keeps only in Python's memory. Saved in an
// extension of VarDesc (proto/training.proto), so that a reloaded program can be differentiated,
// clipped and trained.

#include <coracle/framework/ir/attribute.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coracle {

class BlockDesc;

// Clips the gradient of one variable inside backward, before the next gradient op reads it ("error
// clip"). Immutable.
class BaseErrorClipAttr {
 public:
  virtual ~BaseErrorClipAttr() = default;
  // Appends to the end of `block` the ops that replace the gradient `grad_name` in place.
  virtual void AppendClipOp(BlockDesc& block, const std::string& grad_name) const = 0;
  // How a program file keeps it. The kind must have been given to RegisterErrorClip; the default
  // (none) makes a program that holds such a clip impossible to save.
  virtual std::optional<Setting> Save() const { return std::nullopt; }
};

// Every value above max becomes max, every value below min becomes min. Throws kInvalidArgument
// when max < min or one is a nan. Saved as kind "by_value".
class ErrorClipByValue : public BaseErrorClipAttr {
 public:
  explicit ErrorClipByValue(double max) : ErrorClipByValue(max, -max) {}
  ErrorClipByValue(double max, double min);
  double max() const { return max_; }
  double min() const { return min_; }
  void AppendClipOp(BlockDesc& block, const std::string& grad_name) const override;
  std::optional<Setting> Save() const override;

 private:
  double max_, min_;
};

// A gradient whose L2 norm exceeds max_norm is scaled to that norm. Throws kInvalidArgument unless
// max_norm > 0 and finite. Saved as kind "by_norm".
class ErrorClipByNorm : public BaseErrorClipAttr {
 public:
  explicit ErrorClipByNorm(double max_norm);
  double max_norm() const { return max_norm_; }
  void AppendClipOp(BlockDesc& block, const std::string& grad_name) const override;
  std::optional<Setting> Save() const override;

 private:
  double max_norm_;
};

using ErrorClipPtr = std::shared_ptr<const BaseErrorClipAttr>;

// An error clip or none: what takes one takes ErrorClipByValue(5), a shared pointer to a clip, and
// nullptr.
class ErrorClip {
 public:
  ErrorClip() = default;
  ErrorClip(std::nullptr_t) {}                              // NOLINT: these convert on purpose
  ErrorClip(ErrorClipPtr clip) : clip_(std::move(clip)) {}  // NOLINT
  template <std::derived_from<BaseErrorClipAttr> Clip>
  ErrorClip(std::shared_ptr<Clip> clip) : clip_(std::move(clip)) {}  // NOLINT
  template <std::derived_from<BaseErrorClipAttr> Clip>
  ErrorClip(const Clip& clip) : clip_(std::make_shared<Clip>(clip)) {}  // NOLINT

  const ErrorClipPtr& get() const { return clip_; }

 private:
  ErrorClipPtr clip_;
};

// Makes a user-derived class loadable: `load` builds it from what its Save() returned under that
// kind. Process-wide and thread-safe; throws kAlreadyExists for a kind that is taken.
using ErrorClipLoader = ErrorClipPtr (*)(const Setting& setting);
void RegisterErrorClip(const std::string& kind, ErrorClipLoader load);
// A kind that nobody registered gives an object that can be saved again but whose AppendClipOp
// throws kNotFound.
ErrorClipPtr LoadErrorClip(const Setting& setting);
// Throws kInvalidArgument when the clip's class cannot be saved (no Save(), or its kind is not
// registered).
Setting SaveErrorClip(const BaseErrorClipAttr& clip);

struct TrainingAttr {
  bool trainable = true;
  double learning_rate = 1.0;            // multiplies the optimizer's
  std::optional<Setting> initializer;    // "constant", "uniform", "normal", "truncated_normal",
                                         // "xavier", "msra", "array"
  std::optional<Setting> regularizer;    // "l1_decay", "l2_decay" with coeff
  std::optional<Setting> gradient_clip;  // "by_value", "by_norm", "by_global_norm"
  ErrorClipPtr error_clip;
  std::string creation_site;  // "lenet.pbtxt:14:9" or ""

  bool IsDefault() const;
  bool operator==(const TrainingAttr& other) const;  // error clips compare by what they save
};

}  // namespace coracle
