#include <coracle/framework/ir/role.h>
#include <coracle/framework/ir/training_stage.h>

#include <algorithm>
#include <array>

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

std::string FirstOutput(const OpDesc& op) {
  std::string first;
  op.AnyOutput([&](const std::string& name) {
    first = name;
    return true;
  });
  return first;
}

// The entry of the list that `is` accepts, added if there is none.
template <class T, class Is>
T& FindOrAdd(std::vector<T>& list, T added, Is is) {
  const auto found = std::find_if(list.begin(), list.end(), is);
  return found == list.end() ? list.emplace_back(std::move(added)) : *found;
}

void AddUnique(std::vector<std::string>& names, const std::string& name) {
  FindOrAdd(names, name, [&](const std::string& other) { return other == name; });
}

TrainingParts::NormClip& NormClipOf(TrainingParts& parts, const std::string& of) {
  const TrainingParts::NormClip none = {of, "", "", 0};
  return FindOrAdd(parts.norm_clips, none, [&](const auto& clip) { return clip.of == of; });
}

void AddPart(const OpDesc& op, TrainingParts& parts) {
  if (!op.HasAttr(kTrainingPartAttr)) return;  // most ops
  const TrainingMark mark = MarkOf(op);
  const std::string out = FirstOutput(op);
  switch (mark.part) {
    case Part::kNone:
      break;
    case Part::kRate:
      parts.schedules.push_back({out, mark.of});
      break;
    case Part::kNorm:
      NormClipOf(parts, mark.of).norm = out;
      break;
    case Part::kCounter:
      if (mark.stage == Stage::kClip) NormClipOf(parts, mark.of).counter = out;
      break;
    case Part::kLimit:
      NormClipOf(parts, mark.of).limit = static_cast<double>(op.GetAttr<float>("value", 0));
      break;
    case Part::kStatistics:
      FindOrAdd(parts.counted_clips, {mark.stage.value_or(Stage::kClip), mark.of, out},
                [&](const auto& clip) { return clip.statistics == out; });
      break;
    case Part::kFinite:
      AddUnique(parts.finite_flags, out);
      break;
  }
}

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
    const TrainingMark mark = MarkOf(block.op(i));
    if (mark.stage == stage && mark.part == part) return &block.op(i);
  }
  return nullptr;
}

TrainingParts PartsOf(const ProgramDesc& program) {
  TrainingParts parts;
  program.ForEachOp([&](const OpDesc& op) {
    if (op.HasInput("LearningRate")) AddUnique(parts.rates, op.Input("LearningRate").front());
    AddPart(op, parts);
  });
  return parts;
}

}  // namespace coracle
