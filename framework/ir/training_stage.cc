#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/training_stage.h>

#include <array>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

using Stage = TrainingStage;

struct Mark {
  std::string_view text;
  Stage stage;
};
// Output slots. They take precedence over names, since these ops write gradients of any name.
constexpr Mark kSlots[] = {
    {"FoundInfinite", Stage::kUnscale},
    {"LossScaling", Stage::kScaleUpdate},
    {"out_sum_1", Stage::kParameterAverages},
};
// Parts of the name of an op's first output.
constexpr Mark kMarks[] = {
    {"loss_is_finite", Stage::kCheckLoss},
    {"@LOSSES_ARE_FINITE@", Stage::kCheckLoss},
    {"@GRAD@SUM", Stage::kAccumulate},
    {"@MICRO_STEPS@", Stage::kAccumulate},
    {"micro_step", Stage::kAccumulate},
    {"found_infinite", Stage::kUnscale},
    {"loss_scaling_", Stage::kUnscale},
    {"update_guard", Stage::kUnscale},
    {"@GRAD@MEAN", Stage::kAverage},
    {"@GRAD@CLIPPED", Stage::kClip},
    {"gradient_clip.", Stage::kClip},
    {"@DECAY", Stage::kDecay},
    {"@SIGN", Stage::kDecay},
    {"_decay_", Stage::kDecay},
    {"@EMA_", Stage::kParameterAverages},
    {"_ema_", Stage::kParameterAverages},
    {"@LOOKAHEAD_STEP@", Stage::kParameterAverages},
    {"_slow_", Stage::kParameterAverages},
    {"_ahead_", Stage::kParameterAverages},
    {"error_clip_finite", Stage::kScaleUpdate},
};

std::string_view FirstOutput(const OpDesc& op) {
  for (const Slot& slot : op.outputs()) {
    if (!slot.args.empty()) return slot.args.front();
  }
  return {};
}

// The parameter that an update op belongs to; "" if none.
std::string_view ParameterOf(const OpDesc& op) {
  const Attribute* attr = op.FindAttr(kOpRoleVarAttr);
  const auto* names = attr ? std::get_if<std::vector<std::string>>(attr) : nullptr;
  return names && !names->empty() ? std::string_view(names->front()) : std::string_view();
}

// A gradient changed in place is being clipped. The variables that count or scale clips have names
// of their own; the gradient of a variable with such a name does not count as one.
Stage BackwardStageOf(const OpDesc& op) {
  if (RoleOf(op) & kLoss) return Stage::kBackward;
  const std::string_view out = FirstOutput(op);
  const bool is_gradient = out.find(kGradSuffix) != out.npos;
  const bool of_clip = out.starts_with("error_clip.") || out.starts_with("error_clip_finite_");
  const bool clips = is_gradient ? op.Reads(out) : of_clip;
  return clips || op.HasOutput("StatisticsOut") ? Stage::kErrorClip : Stage::kBackward;
}

// The stage whose mark is the last in a name, since a stage appends its mark to names that may be
// chosen by the user.
Stage LastMarkIn(std::string_view name) {
  Stage stage = Stage::kOptimize;
  size_t after = 0;
  for (const Mark& mark : kMarks) {
    const size_t at = name.rfind(mark.text);
    if (at == name.npos || at + 1 <= after) continue;
    after = at + 1;
    stage = mark.stage;
  }
  return stage;
}

bool IsParameter(const OpDesc& op, std::string_view name) {
  const VarDesc* var = op.block()->FindVarRecursive(name);
  return var && var->is_parameter();
}

Stage UpdateStageOf(const OpDesc& op) {
  if (op.HasInput("Param")) return Stage::kUpdate;
  for (const Mark& slot : kSlots)
    if (op.HasOutput(slot.text)) return slot.stage;
  const std::string_view out = FirstOutput(op), param = ParameterOf(op);
  const Stage stage = LastMarkIn(out.starts_with(param) ? out.substr(param.size()) : out);
  return stage != Stage::kOptimize && IsParameter(op, out) ? Stage::kOptimize : stage;
}

// Finds the stage from the op alone.
Stage MarkedStage(const OpDesc& op) {
  const int role = RoleOf(op);
  // Ops with which ranks exchange gradients and flags, or wait for them.
  if (role != kForward && op.HasAttr("ring_id")) return Stage::kCommunicate;
  if (role & kLRSched) return Stage::kSchedule;
  if (role & kOptimize) return UpdateStageOf(op);
  if (role & kBackward) return BackwardStageOf(op);
  if (role & (kRpc | kDist)) return Stage::kCommunicate;
  const bool scales = (role & kLoss) && op.HasInput("ScaleTensor");
  return scales && FirstOutput(op).ends_with(".scaled") ? Stage::kScaleLoss : Stage::kForward;
}

bool IsOfUpdate(Stage stage) {
  return stage > Stage::kErrorClip && stage != Stage::kSchedule && stage != Stage::kCommunicate;
}

// Finds the stages of update ops without a mark from the ops around them.
void FindUnmarked(const BlockDesc& block, std::vector<Stage>& stages) {
  std::unordered_map<std::string_view, Stage> reader;
  std::unordered_set<std::string_view> updated;  // parameters that later ops update
  for (size_t i = block.NumOps(); i-- > 0;) {
    const OpDesc& op = block.op(i);
    if (!(RoleOf(op) & kOptimize)) continue;
    const std::string_view param = ParameterOf(op), out = FirstOutput(op);
    Stage& stage = stages[i];
    if (stage == Stage::kOptimize && !param.empty()) {
      // An op that changes a parameter before its update is a decay outside the gradient.
      const bool decays = out == param && updated.count(param);
      stage = decays ? Stage::kDecay : Stage::kUpdate;
    } else if (const auto found = reader.find(out);
               stage == Stage::kOptimize && found != reader.end()) {
      stage = found->second;
    }
    if (stage == Stage::kUpdate) updated.insert(param);
    op.ForEachInput([&](const std::string& name) { reader[name] = stage; });
  }
  for (size_t i = 1; i < stages.size(); ++i) {
    if (stages[i] == Stage::kOptimize && IsOfUpdate(stages[i - 1])) stages[i] = stages[i - 1];
  }
}

}  // namespace

int RoleOf(const OpDesc& op) {
  const Attribute* role = op.FindAttr(kOpRoleAttr);
  Attribute number;
  if (!role || !ConvertAttribute(*role, AttrType::kInt, &number)) return kForward;
  return std::get<int32_t>(number);
}

const char* ToString(TrainingStage stage) {
  constexpr std::array kTitles = {"forward",
                                  "scale loss",
                                  "backward",
                                  "error clip",
                                  "check loss",
                                  "accumulate",
                                  "unscale and check",
                                  "average gradients",
                                  "gradient clip",
                                  "learning-rate schedule",
                                  "weight decay",
                                  "update",
                                  "averages of parameters",
                                  "update loss scale",
                                  "optimize",
                                  "communicate"};
  return kTitles[static_cast<size_t>(stage)];
}

std::vector<TrainingStage> StagesOf(const BlockDesc& block) {
  std::vector<TrainingStage> stages;
  stages.reserve(block.NumOps());
  for (size_t i = 0; i < block.NumOps(); ++i) stages.push_back(MarkedStage(block.op(i)));
  FindUnmarked(block, stages);
  return stages;
}

}  // namespace coracle
