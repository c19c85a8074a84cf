#pragma once
// VarDesc: one variable of a block: what it holds, and how it takes part in training.

#include <coracle/framework/ir/training_attr.h>
#include <coracle/framework/tensor/dtype.h>
#include <coracle/framework/tensor/shape.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace coracle {

// What a variable holds; the numbers are VarType.Type's. Numbers outside this list are kept as they
// are.
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

// The static type of a value. A dimension of -1 is not known yet.
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
  explicit VarDesc(std::string name) : name_(std::move(name)) {}
  VarDesc(const VarDesc& other);
  VarDesc& operator=(const VarDesc&) = delete;

  const std::string& name() const { return name_; }
  size_t index() const { return index_; }  // position among the variables of its block

  const VarMeta& meta() const { return meta_; }
  void SetMeta(const VarMeta& meta) { meta_ = meta; }
  VarType type() const { return meta_.type; }
  DType dtype() const { return meta_.dtype; }
  const Shape& shape() const { return meta_.shape; }
  int32_t lod_level() const { return meta_.lod_level; }
  void SetType(VarType type) { meta_.type = type; }
  void SetDType(DType dtype) { meta_.dtype = dtype; }
  void SetShape(const Shape& shape) { meta_.shape = shape; }
  void SetLoDLevel(int32_t level) { meta_.lod_level = level; }

  // Persistable values live in the scope from run to run (parameters, optimizer state).
  bool persistable() const { return persistable_.value_or(false); }
  void SetPersistable(bool value) { persistable_ = value; }
  // What was set (a file's field included), else what ProgramDesc::InferParameters concluded.
  bool is_parameter() const { return is_parameter_.value_or(inferred_parameter_.value_or(false)); }
  void SetIsParameter(bool value) { is_parameter_ = value; }
  bool stop_gradient() const { return stop_gradient_.value_or(false); }
  void SetStopGradient(bool value) { stop_gradient_ = value; }
  bool need_check_feed() const { return need_check_feed_.value_or(false); }
  void SetNeedCheckFeed(bool value) { need_check_feed_ = value; }

  // Never null to read; made on the first write.
  const TrainingAttr& training() const;
  TrainingAttr& MutableTraining();

  const ErrorClipPtr& error_clip() const { return training().error_clip; }
  // A clip (ErrorClipByValue(5) and the like), a shared pointer to one, or nullptr for none.
  void SetErrorClip(const ErrorClip& clip) { MutableTraining().error_clip = clip.get(); }

  bool operator==(const VarDesc& other) const;  // what it means, not how it was spelled on the wire

  // For the codec only: what a file said that the fields above do not hold, so that writing gives
  // the same bytes.
  struct Wire {
    std::string
        type_bytes;  // a VarType message with more than the fields above; "" for the plain form
    std::string unknown_fields;  // of VarDesc, VarDesc.attrs included
    bool lod_level_present = false;
    bool operator==(const Wire&) const = default;
  };
  const Wire* wire() const { return wire_.get(); }
  Wire& MutableWire();
  std::optional<bool>& persistable_field() { return persistable_; }
  std::optional<bool>& need_check_feed_field() { return need_check_feed_; }
  std::optional<bool>& is_parameter_field() { return is_parameter_; }
  std::optional<bool>& stop_gradient_field() { return stop_gradient_; }
  const std::optional<bool>& persistable_field() const { return persistable_; }
  const std::optional<bool>& need_check_feed_field() const { return need_check_feed_; }
  const std::optional<bool>& is_parameter_field() const { return is_parameter_; }
  const std::optional<bool>& stop_gradient_field() const { return stop_gradient_; }

 private:
  friend class BlockDesc;
  friend class ProgramDesc;
  std::string name_;
  size_t index_ = 0;
  VarMeta meta_;
  std::optional<bool> persistable_, need_check_feed_, is_parameter_, stop_gradient_;
  std::optional<bool> inferred_parameter_;
  std::unique_ptr<TrainingAttr> training_;
  std::unique_ptr<Wire> wire_;
};

}  // namespace coracle
