#include <coracle/framework/ir/role.h>
#include <coracle/framework/ir/training_stage.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

using Stage = TrainingStage;
using Part = TrainingPart;

constexpr std::array kStages = {"forward",
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
constexpr std::array kParts = {"", "counter", "rate", "norm", "limit", "statistics", "finite"};

// The enumerator whose title this is.
template <class Enum, size_t N>
std::optional<Enum> Find(const std::array<const char*, N>& titles, std::string_view title) {
  const auto found = std::find(titles.begin(), titles.end(), title);
  if (found == titles.end()) return std::nullopt;
  return static_cast<Enum>(found - titles.begin());
}

std::string_view TextOf(const OpDesc& op, const char* attr) {
  const Attribute* found = op.FindAttr(attr);
  const auto* text = found ? std::get_if<std::string>(found) : nullptr;
  return text ? std::string_view(*text) : std::string_view();
}

void SetText(OpDesc& op, const char* attr, const std::string& text) {
  if (!text.empty() && !op.HasAttr(attr)) op.SetAttr(attr, text);
}

// Whether op_role_var names the parameter that the op updates.
bool NamesParameter(const OpDesc& op) {
  const Attribute* attr = op.FindAttr(kOpRoleVarAttr);
  const auto* names = attr ? std::get_if<std::vector<std::string>>(attr) : nullptr;
  return names && !names->empty() && !names->front().empty();
}

Stage StageOfRole(const OpDesc& op) {
  const int role = RoleOf(op);
  // Ops with which ranks exchange gradients and flags, or wait for them.
  if (role != kForward && op.HasAttr("ring_id")) return Stage::kCommunicate;
  if (role & kLRSched) return Stage::kSchedule;
  if (role & kOptimize)
    return op.HasInput("Param") || NamesParameter(op) ? Stage::kUpdate : Stage::kOptimize;
  if (role & kBackward) return Stage::kBackward;
  return role & (kRpc | kDist) ? Stage::kCommunicate : Stage::kForward;
}

// The dense persistable variable of the root block that has this name where the op is.
const VarDesc* StateOf(const OpDesc& op, const std::string& name) {
  const VarDesc* var = op.block()->program().Root().FindVar(name);
  const bool is_state = var && var->persistable() && var->type() == VarType::kLoDTensor &&
                        op.block()->FindVarRecursive(name) == var;
  return is_state ? var : nullptr;
}

bool IsState(const OpDesc& op, const std::string& name, DType dtype, int64_t size) {
  const VarDesc* var = StateOf(op, name);
  return var && var->dtype() == dtype && var->shape() == Shape{size};
}

bool IsNorm(const OpDesc& op, const std::string& name) {
  const VarDesc* var = StateOf(op, name);
  return var && IsFloating(var->dtype()) && var->shape().rank() == 1 && var->shape().IsKnown();
}

std::optional<float> FloatIn(const OpDesc& op, const char* name) {
  const Attribute* attr = op.FindAttr(name);
  Attribute value;
  if (!attr || !ConvertAttribute(*attr, AttrType::kFloat, &value)) return std::nullopt;
  return std::get<float>(value);
}

bool CountsSteps(const OpDesc& op, const std::string& out) {
  return op.Output("Out").size() == 1 && op.Input("X") == op.Output("Out") &&
         FloatIn(op, "step") == 1.0f && IsState(op, out, DType::kInt64, 1);
}

// Whether the op can be the part that its mark says. A file may have any marks on any ops.
bool IsPart(const OpDesc& op, const TrainingMark& mark, const std::string& out) {
  const bool schedule = mark.stage == Stage::kSchedule, clip = mark.stage == Stage::kClip;
  const bool error_clip = mark.stage == Stage::kErrorClip;
  size_t outputs = 0;
  op.ForEachOutput([&](const std::string&) { ++outputs; });
  if (outputs != 1) return false;
  switch (mark.part) {
    case Part::kNone:
      return false;
    case Part::kCounter:
      return (schedule || clip) && CountsSteps(op, out);
    case Part::kRate:
      return schedule && IsState(op, mark.of, DType::kInt64, 1);
    case Part::kNorm:
      return clip && !op.Reads(out) && IsNorm(op, out);
    case Part::kLimit:
      return clip && !op.AnyInput([](const std::string&) { return true; }) &&
             FloatIn(op, "value").has_value();
    case Part::kStatistics:
      return (clip || error_clip) && op.HasOutput("StatisticsOut") && op.Reads(out) &&
             IsState(op, out, DType::kFloat64, 3);
    case Part::kFinite:
      return error_clip && op.Reads(out) && IsState(op, out, DType::kBool, 1);
  }
  return false;
}

// Collects the parts of a program.
class PartCollector {
 public:
  void Add(const OpDesc& op) {
    if (op.HasInput("LearningRate")) AddRate(op.Input("LearningRate").front());
    if (!op.HasAttr(kTrainingPartAttr)) return;  // most ops
    const TrainingMark mark = MarkOf(op);
    const std::string out = op.FirstOutput();
    if (IsPart(op, mark, out)) AddPart(op, mark, out);
  }
  // Clips by norm without a norm, a counter or a limit are left out.
  TrainingParts Take() {
    std::erase_if(parts_.norm_clips, [](const TrainingParts::NormClip& clip) {
      return clip.norm.empty() || clip.counter.empty() || std::isnan(clip.limit);
    });
    return std::move(parts_);
  }

 private:
  void AddRate(const std::string& name) {
    if (rates_.insert(name).second) parts_.rates.push_back(name);
  }

  void AddPart(const OpDesc& op, const TrainingMark& mark, const std::string& out) {
    if (mark.part == Part::kRate) {
      parts_.schedules.push_back({out, mark.of});
    } else if (mark.part == Part::kNorm) {
      ClipWithout(&TrainingParts::NormClip::norm, mark.of).norm = out;
    } else if (mark.part == Part::kCounter && mark.stage == Stage::kClip) {
      ClipWithout(&TrainingParts::NormClip::counter, mark.of).counter = out;
    } else if (mark.part == Part::kLimit) {
      if (const auto clip = clips_.find(mark.of); clip != clips_.end())
        parts_.norm_clips[clip->second].limit = double{FloatIn(op, "value").value()};
    } else if (mark.part == Part::kStatistics) {
      if (states_.insert(out).second) parts_.counted_clips.push_back({*mark.stage, mark.of, out});
    } else if (mark.part == Part::kFinite) {
      if (states_.insert(out).second) parts_.finite_flags.push_back(out);
    }
  }

  // The last clip of the owner; a new one if that has this member, as in merged programs.
  TrainingParts::NormClip& ClipWithout(std::string TrainingParts::NormClip::*member,
                                       const std::string& of) {
    std::vector<TrainingParts::NormClip>& clips = parts_.norm_clips;
    const auto [last, added] = clips_.try_emplace(of, clips.size());
    if (!added && (clips[last->second].*member).empty()) return clips[last->second];
    last->second = clips.size();
    return clips.emplace_back(TrainingParts::NormClip{of, "", "", std::nan("")});
  }

  TrainingParts parts_;
  std::unordered_set<std::string> rates_, states_;
  std::unordered_map<std::string, size_t> clips_;  // the last of each owner, in norm_clips
};

}  // namespace

const char* ToString(TrainingStage stage) { return kStages[static_cast<size_t>(stage)]; }

std::optional<TrainingStage> FindStage(std::string_view title) {
  return Find<Stage>(kStages, title);
}

void SetMark(OpDesc& op, const TrainingMark& mark) {
  if (mark.stage) SetText(op, kTrainingStageAttr, ToString(*mark.stage));
  SetText(op, kTrainingPartAttr, kParts[static_cast<size_t>(mark.part)]);
  SetText(op, kTrainingOfAttr, mark.of);
}

void SetMarks(BlockDesc& block, size_t first, const TrainingMark& mark) {
  for (size_t i = first; i < block.NumOps(); ++i) SetMark(block.op(i), mark);
}

TrainingMark MarkOf(const OpDesc& op) {
  return {.stage = FindStage(TextOf(op, kTrainingStageAttr)),
          .part = Find<Part>(kParts, TextOf(op, kTrainingPartAttr)).value_or(Part::kNone),
          .of = std::string(TextOf(op, kTrainingOfAttr))};
}

TrainingStage StageOf(const OpDesc& op) {
  const std::optional<Stage> marked = FindStage(TextOf(op, kTrainingStageAttr));
  return marked ? *marked : StageOfRole(op);
}

const OpDesc* FindPart(const BlockDesc& block, TrainingStage stage, TrainingPart part) {
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    const TrainingMark mark = MarkOf(op);
    if (mark.stage == stage && mark.part == part && IsPart(op, mark, op.FirstOutput())) return &op;
  }
  return nullptr;
}

TrainingParts PartsOf(const ProgramDesc& program) {
  PartCollector parts;
  program.ForEachOp([&](const OpDesc& op) { parts.Add(op); });
  return parts.Take();
}

}  // namespace coracle
