#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/var.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <mutex>

namespace coracle {
namespace {

// Keeps the saved form of an error clip whose class is unknown to this process.
class UnregisteredErrorClip : public BaseErrorClipAttr {
 public:
  explicit UnregisteredErrorClip(Setting setting) : setting_(std::move(setting)) {}
  void AppendClipOp(BlockDesc&, const std::string& grad_name) const override {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format(
            "error clip of kind {} on the gradient {} is not registered; call RegisterErrorClip",
            Quote(setting_.kind), Quote(grad_name)));
  }
  std::optional<Setting> Save() const override { return setting_; }

 private:
  Setting setting_;
};

ErrorClipPtr LoadByValue(const Setting& s) {
  double max = s.Get<double>("max", 0);
  return std::make_shared<ErrorClipByValue>(max, s.Get<double>("min", -max));
}
ErrorClipPtr LoadByNorm(const Setting& s) {
  return std::make_shared<ErrorClipByNorm>(s.Get<double>("max_norm", 0));
}

std::mutex loaders_mutex;
std::map<std::string, ErrorClipLoader>& Loaders() {
  static std::map<std::string, ErrorClipLoader> loaders = {{"by_value", LoadByValue},
                                                           {"by_norm", LoadByNorm}};
  return loaders;
}

ErrorClipLoader FindLoader(const std::string& kind) {
  std::lock_guard<std::mutex> lock(loaders_mutex);
  auto it = Loaders().find(kind);
  return it == Loaders().end() ? nullptr : it->second;
}

bool SameClip(const ErrorClipPtr& a, const ErrorClipPtr& b) {
  if (a == b) return true;
  if (!a || !b) return false;
  auto saved = a->Save();
  return saved && saved == b->Save();
}

// The attr is a float. If that is too imprecise for a float64 gradient, the limit becomes an input.
void AppendLimit(BlockDesc& block, const char* slot, double limit, SlotList* inputs) {
  const VarDesc* grad = block.FindVarRecursive(inputs->front().args.front());
  const bool is_exact = double{static_cast<float>(limit)} == limit || std::isnan(limit);
  if (!grad || grad->dtype() != DType::kFloat64 || is_exact) return;
  const std::string name = block.program().FreeName(grad->name() + "@LIMIT");
  VarDesc& var = block.Var(name);
  var.SetMeta({VarType::kLoDTensor, DType::kFloat64, {1}, 0});
  var.SetStopGradient(true);
  block.AppendOp("fill_constant", {}, {{"Out", {name}}},
                 {{"shape", std::vector<int64_t>{1}},
                  {"dtype", static_cast<int32_t>(DType::kFloat64)},
                  {"value", static_cast<float>(limit)},
                  {"str_value", fmt::format("{}", limit)},
                  {kOpRoleAttr, int{kBackward}}});
  inputs->push_back({slot, {name}});
}

}  // namespace

ErrorClipByValue::ErrorClipByValue(double max, double min) : max_(max), min_(min) {
  if (!(max >= min))
    ThrowInvalid(fmt::format(
        "error clip by value: max must not be less than min, got max {} and min {}", max, min));
}

void ErrorClipByValue::AppendClipOp(BlockDesc& block, const std::string& grad_name) const {
  SlotList inputs = {{"X", {grad_name}}};
  AppendLimit(block, "Min", min_, &inputs);
  AppendLimit(block, "Max", max_, &inputs);
  block.AppendOp("clip", std::move(inputs), {{"Out", {grad_name}}},
                 {{"min", static_cast<float>(min_)},
                  {"max", static_cast<float>(max_)},
                  {kOpRoleAttr, int{kBackward}}});
}

std::optional<Setting> ErrorClipByValue::Save() const {
  return Setting{"by_value", {{"max", max_}, {"min", min_}}};
}

ErrorClipByNorm::ErrorClipByNorm(double max_norm) : max_norm_(max_norm) {
  if (!(max_norm > 0) || std::isinf(max_norm)) {
    ThrowInvalid(
        fmt::format("error clip by norm: max_norm must be positive and finite, got {}", max_norm));
  }
}

void ErrorClipByNorm::AppendClipOp(BlockDesc& block, const std::string& grad_name) const {
  SlotList inputs = {{"X", {grad_name}}};
  AppendLimit(block, "MaxNorm", max_norm_, &inputs);
  block.AppendOp("clip_by_norm", std::move(inputs), {{"Out", {grad_name}}},
                 {{"max_norm", static_cast<float>(max_norm_)}, {kOpRoleAttr, int{kBackward}}});
}

std::optional<Setting> ErrorClipByNorm::Save() const {
  return Setting{"by_norm", {{"max_norm", max_norm_}}};
}

void RegisterErrorClip(const std::string& kind, ErrorClipLoader load) {
  if (kind.empty()) ThrowInvalid("error clip: the kind to register has no name");
  RequireFunction(load, fmt::format("error clip {}: its loader", Quote(kind)));
  std::lock_guard<std::mutex> lock(loaders_mutex);
  if (!Loaders().emplace(kind, load).second) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("error clip kind {} is already registered", Quote(kind)));
  }
}

ErrorClipPtr LoadErrorClip(const Setting& setting) {
  if (ErrorClipLoader load = FindLoader(setting.kind)) return load(setting);
  return std::make_shared<UnregisteredErrorClip>(setting);
}

Setting SaveErrorClip(const BaseErrorClipAttr& clip) {
  auto setting = clip.Save();
  if (!setting)
    ThrowInvalid(
        "an error clip's class has no Save(), so the program cannot be saved; override Save() and "
        "call RegisterErrorClip");
  if (!FindLoader(setting->kind) && !dynamic_cast<const UnregisteredErrorClip*>(&clip)) {
    ThrowInvalid(
        fmt::format("error clip of kind {} is not registered, so the program cannot be saved; call "
                    "RegisterErrorClip",
                    Quote(setting->kind)));
  }
  return *setting;
}

bool TrainingAttr::IsDefault() const { return *this == TrainingAttr(); }

bool TrainingAttr::operator==(const TrainingAttr& other) const {
  return trainable == other.trainable && learning_rate == other.learning_rate &&
         initializer == other.initializer && regularizer == other.regularizer &&
         gradient_clip == other.gradient_clip && SameClip(error_clip, other.error_clip) &&
         creation_site == other.creation_site;
}

}  // namespace coracle
