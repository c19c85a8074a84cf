#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/operators/operators.h>
#include <coracle/train/job/job_fields.h>
#include <coracle/train/job/names.h>
#include <coracle/train/run/predict/output_meaning.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

namespace coracle::inline internal {
namespace {

// `target` computed from the label alone, for some labels.
std::optional<std::vector<float>> TargetsOf(const ProgramDesc& program, const std::string& label,
                                            const std::string& target, const Scope& parameters,
                                            const std::vector<float>& labels) {
  try {
    const auto rows = static_cast<int64_t>(labels.size());
    const DType dtype = program.Root().FindVar(label)->dtype();
    ProgramDesc part = program;
    part.Prune({target}, {label});
    Scope scope = parameters.Clone();
    const std::vector<Tensor> out =
        Executor({.shape_warnings = false})
            .Run(part, scope, {{label, Tensor::Of<float>({rows, 1}, labels).Cast(dtype)}},
                 {target});
    if (out[0].numel() != rows || !IsFloating(out[0].dtype())) return std::nullopt;
    const Tensor values = out[0].Cast(DType::kFloat32);
    return std::vector<float>(values.data<float>(), values.data<float>() + rows);
  } catch (const Error&) {  // it also depends on other inputs
    return std::nullopt;
  }
}

// The label is target * scale + offset.
using Undo = std::pair<float, float>;

std::optional<Undo> UndoOf(const ProgramDesc& program, const std::string& label,
                           const std::string& target, const Scope& parameters) {
  if (target == label) return Undo(1, 0);
  // A large label gives a slope that the offset does not blur.
  const std::vector<float> labels = {0, 1, 2, -3, 0x1p30F};
  const auto y = TargetsOf(program, label, target, parameters, labels);
  if (!y) return std::nullopt;
  const float first = y->front(), slope = (y->back() - first) / labels.back();
  if (!std::isnormal(slope)) return std::nullopt;
  for (size_t i = 1; i < labels.size(); ++i) {
    const float expected = slope * labels[i] + first;
    const float size = std::abs(expected) + std::abs(first) + std::abs(slope);
    if (!(std::abs((*y)[i] - expected) <= 1e-5F * size)) return std::nullopt;
  }
  return Undo(1 / slope, first == 0 ? 0 : -first / slope);
}

// Looks for an op that compares the output with a value computed from the label.
std::optional<Undo> FindUndo(const ProgramDesc& program, const std::string& output,
                             const std::string& label, const Scope& parameters) {
  const BlockDesc& root = program.Root();
  const VarDesc* given = root.FindVar(label);
  if (!given || !root.Uses(label).writers.empty()) return std::nullopt;
  std::optional<Undo> found;
  for (const OpDesc* op : root.Uses(output).readers) {
    op->ForEachInput([&](const std::string& target) {
      if (found || target == output) return;
      const VarDesc* var = root.FindVar(target);
      if (var && !var->persistable()) found = UndoOf(program, label, target, parameters);
    });
  }
  return found;
}

// The data holds (label - mean) * scale.
void UndoLabel(const JobConfig& config, const DataSource& data, OutputMeaning* meaning) {
  const auto* given = std::get_if<CsvOptions>(&config.train.source);
  if (!given || given->label_kind != CsvLabel::kReal) return;
  const auto fitted = data.fitted();
  const CsvOptions& csv = fitted && fitted->csv ? *fitted->csv : *given;
  meaning->scale /= csv.label_scale;
  meaning->offset = meaning->offset / csv.label_scale + csv.label_mean;
}

}  // namespace

std::string LabelVar(const JobConfig& config) {
  for (const BindConfig& bind : config.bind)
    if (bind.column == "label") return bind.var;
  return "label";
}

std::vector<std::string> ClassNamesOf(const JobConfig& config, const DataSource& data) {
  std::vector<std::string> classes;
  if (const auto* csv = std::get_if<CsvOptions>(&config.train.source)) return csv->classes;
  const auto fitted = data.fitted();
  if (fitted && fitted->pictures) return fitted->pictures->classes;
  if (const auto* pictures = std::get_if<PictureOptions>(&config.train.source))
    return pictures->classes;
  if (const auto* digits = std::get_if<DigitsOptions>(&config.train.source)) {
    for (const int32_t digit : digits->classes) classes.push_back(std::to_string(digit));
    for (int digit = 0; digits->classes.empty() && digit < 10; ++digit)
      classes.push_back(std::to_string(digit));
  }
  const Vocabulary* vocabulary = data.vocabulary();
  for (int64_t i = 0; vocabulary && i < vocabulary->size(); ++i)
    classes.push_back(vocabulary->Character(i));
  return classes;
}

void NameClasses(const JobConfig& config, const DataSource& data,
                 std::vector<ConfusionMatrix>* confusions) {
  for (ConfusionMatrix& confusion : *confusions) {
    const auto of_label = [&](const MetricConfig& metric) {
      return metric.name == confusion.name && metric.label == LabelVar(config);
    };
    if (std::none_of(config.metrics.begin(), config.metrics.end(), of_label)) continue;
    std::vector<std::string> names = ClassNamesOf(config, data);
    if (static_cast<int64_t>(names.size()) == confusion.classes)
      confusion.class_names = std::move(names);
  }
}

namespace {

// Whether the op reads scores of classes from the variable, or writes them to it.
bool HasScoresIn(const OpDesc& op, const std::string& var) {
  const OpSpec* spec = DefaultOps().Find(op.type());
  return spec && std::any_of(spec->score_slots.begin(), spec->score_slots.end(),
                             [&](const std::string& slot) {
                               return Contains(op.Input(slot), var) ||
                                      Contains(op.Output(slot), var);
                             });
}

// Whether the op gives each element of its first input on by itself, perhaps moved or scaled.
bool PassesElements(const OpSpec& spec) {
  if (!spec.alias.empty() || (spec.permutes && spec.axes == AxesAttr::kNone)) return true;
  const auto is_needed = [](const SlotDef& slot) { return !slot.optional; };
  return spec.elementwise &&
         std::count_if(spec.inputs.begin(), spec.inputs.end(), is_needed) == 1 &&
         !LinearWith(spec, spec.inputs[0].name).empty();
}

// The variables to which the op only passes the elements of `var`.
std::vector<std::string> PassedOn(const OpDesc& op, const std::string& var) {
  const OpSpec* spec = DefaultOps().Find(op.type());
  std::vector<std::string> names;
  if (!spec || spec->inputs.empty() || !PassesElements(*spec)) return names;
  if (!Contains(op.Input(spec->inputs[0].name), var)) return names;
  op.ForEachOutput([&](const std::string& name, const std::string& slot) {
    const SlotDef* out = spec->FindOutput(slot);
    if (out && !out->intermediate) names.push_back(name);
  });
  return names;
}

}  // namespace

std::optional<double> UnitOfTarget(const JobConfig& config, const ProgramDesc& program,
                                   const std::string& target) {
  const std::string label = LabelVar(config);
  const VarDesc* given = program.Root().FindVar(label);
  if (!given || !program.Root().FindVar(target)) return std::nullopt;
  const auto undo = UndoOf(program, label, target, Scope());
  if (!undo) return std::nullopt;
  return std::abs(static_cast<double>(undo->first));
}

bool HoldsScores(const ProgramDesc& program, const std::string& var, const JobConfig& config) {
  const auto measures = [&](const MetricConfig& metric) {
    return metric.var == var && ComparesScores(metric.kind);
  };
  if (std::any_of(config.metrics.begin(), config.metrics.end(), measures)) return true;
  const BlockDesc& root = program.Root();
  std::vector<std::string> names = {var};  // the variable, and what is made of it
  for (size_t i = 0; i < names.size() && i < 16; ++i) {
    const VarUses& uses = root.Uses(names[i]);
    const auto has_scores = [&](const OpDesc* op) { return HasScoresIn(*op, names[i]); };
    if (i == 0 && std::any_of(uses.writers.begin(), uses.writers.end(), has_scores)) return true;
    if (std::any_of(uses.readers.begin(), uses.readers.end(), has_scores)) return true;
    for (const OpDesc* op : uses.readers) {
      const std::vector<std::string> passed = PassedOn(*op, names[i]);
      names.insert(names.end(), passed.begin(), passed.end());
    }
  }
  return false;
}

OutputMeaning MeaningOf(const std::string& output, const JobConfig& config,
                        const Programs& programs, const DataSource& data, const Scope& scope) {
  OutputMeaning meaning;
  meaning.var = output;
  const VarDesc& var = *programs.deploy.program.Root().FindVar(output);
  const Shape& shape = var.shape();
  const int rank = shape.rank();
  const int64_t last = rank > 0 ? shape[rank - 1] : 1;
  const std::vector<std::string> classes = ClassNamesOf(config, data);
  const auto count = static_cast<int64_t>(classes.size());
  const int label = data.FindColumn("label");
  const bool classifies =
      label >= 0 && data.columns()[static_cast<size_t>(label)].dtype == DType::kInt64;
  if (IsInteger(var.dtype())) {
    if (count > 0) meaning.kind = OutputKind::kIds;
    meaning.classes = classes;
  } else if (rank == 3 && count > 0 && last == count && data.vocabulary()) {
    meaning.kind = OutputKind::kSteps;
    meaning.classes = classes;
  } else if (rank == 2 && last > 1 && (classifies || last == count) &&
             HoldsScores(programs.deploy.program, output, config)) {
    meaning.kind = OutputKind::kClasses;
    if (last == count) meaning.classes = classes;
  } else if (IsFloating(var.dtype()) && (rank == 1 || (rank == 2 && last == 1))) {
    meaning.kind = OutputKind::kNumber;
    const auto undo = FindUndo(programs.deploy.program, output, LabelVar(config), scope);
    if (undo) {
      std::tie(meaning.scale, meaning.offset) = *undo;
      UndoLabel(config, data, &meaning);
    }
  }
  return meaning;
}

}  // namespace coracle::inline internal
