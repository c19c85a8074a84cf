#include <coracle/framework/ir/edit_journal.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/framework/ir/var.h>
#include <fmt/format.h>

namespace coracle {
namespace {

// Compares only meaningful fields, which are also the ones that files keep: element type and shape
// of tensors, selected rows and arrays, and the LoD level of tensors and arrays.
bool SameMeta(const VarMeta& a, const VarMeta& b) {
  if (a.type != b.type) return false;
  if (a.type == VarType::kSelectedRows) return a.dtype == b.dtype && a.shape == b.shape;
  return (a.type != VarType::kLoDTensor && a.type != VarType::kLoDTensorArray) || a == b;
}

}  // namespace

const char* ToString(VarType type) {
  switch (type) {
    case VarType::kLoDTensor:
      return "LOD_TENSOR";
    case VarType::kSelectedRows:
      return "SELECTED_ROWS";
    case VarType::kFeedMinibatch:
      return "FEED_MINIBATCH";
    case VarType::kFetchList:
      return "FETCH_LIST";
    case VarType::kStepScopes:
      return "STEP_SCOPES";
    case VarType::kLoDRankTable:
      return "LOD_RANK_TABLE";
    case VarType::kLoDTensorArray:
      return "LOD_TENSOR_ARRAY";
    case VarType::kPlaceList:
      return "PLACE_LIST";
    case VarType::kReader:
      return "READER";
    case VarType::kRaw:
      return "RAW";
    case VarType::kTuple:
      return "TUPLE";
  }
  return "unknown";
}

std::string VarMeta::ToString() const {
  bool plain = type == VarType::kLoDTensor;
  bool tensor = plain || type == VarType::kSelectedRows || type == VarType::kLoDTensorArray;
  if (!tensor) return coracle::ToString(type);
  std::string text = fmt::format("{}{}", coracle::ToString(dtype), shape.ToString());
  return plain ? text : fmt::format("{} {}", coracle::ToString(type), text);
}

VarDesc::VarDesc(std::string name) : name_(std::move(name)) {}
VarDesc::~VarDesc() = default;

VarDesc::VarDesc(const VarDesc& other)
    : name_(other.name_),
      meta_(other.meta_),
      persistable_(other.persistable_),
      need_check_feed_(other.need_check_feed_),
      is_parameter_(other.is_parameter_),
      stop_gradient_(other.stop_gradient_),
      inferred_parameter_(other.inferred_parameter_),
      training_(other.training_ ? std::make_unique<TrainingAttr>(*other.training_) : nullptr),
      wire_(other.wire_ ? std::make_unique<Wire>(*other.wire_) : nullptr) {}

const TrainingAttr& VarDesc::training() const {
  static const TrainingAttr none;
  return training_ ? *training_ : none;
}

void VarDesc::SaveIn(BlockDesc& block) {
  if (auto* journal = block.journal()) journal->SaveVar(*this);
}

TrainingAttr& VarDesc::MutableTraining() {
  Save();
  if (!training_) training_ = std::make_unique<TrainingAttr>();
  return *training_;
}

bool VarDesc::operator==(const VarDesc& other) const {
  auto extra = [](const VarDesc& v) {
    return v.wire_ ? v.wire_->type_bytes + v.wire_->unknown_fields : std::string();
  };
  // The result of InferParameters for one variable is comparable only if it was called for both.
  const bool asked = inferred_parameter_ && other.inferred_parameter_;
  const bool same_role = asked
                             ? is_parameter() == other.is_parameter()
                             : is_parameter_.value_or(false) == other.is_parameter_.value_or(false);
  return name_ == other.name_ && SameMeta(meta_, other.meta_) &&
         persistable() == other.persistable() && need_check_feed() == other.need_check_feed() &&
         same_role && stop_gradient() == other.stop_gradient() && training() == other.training() &&
         extra(*this) == extra(other);
}

}  // namespace coracle
