#pragma once
// VarDesc: one variable of a block, with its type and its settings for training.

#include <coracle/framework/ir/op.h>
#include <coracle/framework/tensor/tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coracle {

class BlockDesc;
inline namespace internal {
struct EditJournal;
struct FileFields;
}  // namespace internal

// Clips the gradient of one variable inside backward, before the next gradient op reads it
// ("error clip"). Immutable.
class BaseErrorClipAttr {
 public:
  virtual ~BaseErrorClipAttr() = default;
  // Appends to the end of `block` the ops that replace the gradient `grad_name` in place.
  virtual void AppendClipOp(BlockDesc& block, const std::string& grad_name) const = 0;
  // The form in which a program file keeps the clip; its kind must be registered by
  // RegisterErrorClip. The default returns nullopt: a program with such a clip cannot be saved.
  virtual std::optional<Setting> Save() const { return std::nullopt; }
};

// Values above max become max and values below min become min. Throws kInvalidArgument if max < min
// or if one is a nan. Saved as kind "by_value".
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
// max_norm is positive and finite. Saved as kind "by_norm".
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

// An error clip or none: a parameter of this type accepts ErrorClipByValue(5), a shared pointer to
// a clip, or nullptr.
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

// Makes a derived class loadable: `load` makes an object from a Setting that its Save() returned.
// Process-wide and thread-safe; throws kAlreadyExists for a kind in use.
using ErrorClipLoader = ErrorClipPtr (*)(const Setting& setting);
void RegisterErrorClip(const std::string& kind, ErrorClipLoader load);
// For an unknown kind, returns an object that can be saved again but whose AppendClipOp
// throws kNotFound.
ErrorClipPtr LoadErrorClip(const Setting& setting);
// Throws kInvalidArgument if the clip's class cannot be saved (no Save(), or its kind is
// not registered).
Setting SaveErrorClip(const BaseErrorClipAttr& clip);

// Training settings of a variable, which Paddle keeps only in Python's memory. They are saved in an
// extension of VarDesc (proto/training.proto), so that a reloaded program can be differentiated,
// clipped and trained.
struct TrainingAttr {
  bool trainable = true;
  // Multiplies the learning rate of the optimizer.
  double learning_rate = 1.0;
  // "constant", "uniform", "normal", "truncated_normal", "xavier", "msra" or "array".
  std::optional<Setting> initializer;
  // "l1_decay" or "l2_decay", with coeff.
  std::optional<Setting> regularizer;
  // "by_value", "by_norm" or "by_global_norm".
  std::optional<Setting> gradient_clip;
  ErrorClipPtr error_clip;
  // "lenet.pbtxt:14:9" or "".
  std::string creation_site;

  bool IsDefault() const;
  bool operator==(const TrainingAttr& other) const;  // compares error clips by their saved form
};

// The kind of value that a variable holds, with the numbers of VarType.Type. Other numbers in files
// are kept unchanged.
enum class VarType : int32_t {
  kLoDTensor = 7,
  kSelectedRows = 8,
  kFeedMinibatch = 9,
  kFetchList = 10,
  kStepScopes = 11,
  kLoDRankTable = 12,
  kLoDTensorArray = 13,
  kPlaceList = 14,
  kReader = 15,
  kRaw = 17,
  kTuple = 18,
};

const char* ToString(VarType type);  // framework.proto's enumerator, "LOD_TENSOR"

// The static type of a value. A dimension of -1 is unknown.
struct VarMeta {
  VarType type = VarType::kLoDTensor;
  DType dtype = DType::kFloat32;
  Shape shape;
  int32_t lod_level = 0;

  std::string ToString() const;  // "float32[-1, 10]", "LOD_TENSOR_ARRAY float32[...]"
  bool operator==(const VarMeta&) const = default;
};

class VarDesc {
 public:
  explicit VarDesc(std::string name);
  VarDesc(const VarDesc& other);
  VarDesc& operator=(const VarDesc&) = delete;
  ~VarDesc();

  const std::string& name() const { return name_; }
  size_t index() const { return index_; }  // position among the variables of its block

  const VarMeta& meta() const { return meta_; }
  void SetMeta(const VarMeta& meta) {
    Save();
    meta_ = meta;
  }
  VarType type() const { return meta_.type; }
  DType dtype() const { return meta_.dtype; }
  const Shape& shape() const { return meta_.shape; }
  int32_t lod_level() const { return meta_.lod_level; }
  void SetType(VarType type) {
    Save();
    meta_.type = type;
  }
  void SetDType(DType dtype) {
    Save();
    meta_.dtype = dtype;
  }
  void SetShape(const Shape& shape) {
    Save();
    meta_.shape = shape;
  }
  void SetLoDLevel(int32_t level) {
    Save();
    meta_.lod_level = level;
  }

  // Persistable values live in the scope from run to run (parameters, optimizer state).
  bool persistable() const { return persistable_.value_or(false); }
  void SetPersistable(bool value) {
    Save();
    persistable_ = value;
  }
  // The value that was set (by the caller or a file), else the result
  // of ProgramDesc::InferParameters.
  bool is_parameter() const { return is_parameter_.value_or(inferred_parameter_.value_or(false)); }
  void SetIsParameter(bool value) {
    Save();
    is_parameter_ = value;
  }
  bool stop_gradient() const { return stop_gradient_.value_or(false); }
  void SetStopGradient(bool value) {
    Save();
    stop_gradient_ = value;
  }
  bool need_check_feed() const { return need_check_feed_.value_or(false); }
  void SetNeedCheckFeed(bool value) {
    Save();
    need_check_feed_ = value;
  }

  // Returns defaults until the first write.
  const TrainingAttr& training() const;
  TrainingAttr& MutableTraining();

  const ErrorClipPtr& error_clip() const { return training().error_clip; }
  // A clip (ErrorClipByValue(5) and the like), a shared pointer to one, or nullptr for none.
  void SetErrorClip(const ErrorClip& clip) { MutableTraining().error_clip = clip.get(); }

  bool operator==(const VarDesc& other) const;  // compares the meaning, not the bytes of the file

 private:
  friend class BlockDesc;
  friend class ProgramDesc;
  friend struct internal::EditJournal;
  friend struct internal::FileFields;
  struct Wire;   // see file_fields.h
  void Save() {  // before a change
    if (block_) SaveIn(*block_);
  }
  void SaveIn(BlockDesc& block);

  BlockDesc* block_ = nullptr;  // the block that owns it, if any
  uint32_t stamp_ = 0;          // see EditJournal
  std::string name_;
  size_t index_ = 0;
  VarMeta meta_;
  std::optional<bool> persistable_, need_check_feed_, is_parameter_, stop_gradient_;
  std::optional<bool> inferred_parameter_;
  std::unique_ptr<TrainingAttr> training_;
  std::unique_ptr<Wire> wire_;
};

}  // namespace coracle
