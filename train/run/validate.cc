#include <coracle/clip/clip.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/mistakes.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/train/job/job_fields.h>
#include <coracle/train/job/names.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/feeder.h>
#include <coracle/train/run/validate.h>
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <variant>

namespace coracle::inline internal {
namespace {

// --- errors ---

// The inputs of the model that `output` needs in addition to the deployed ones.
std::vector<std::string> MissingInputs(const ProgramDesc& program,
                                       const std::vector<std::string>& inputs,
                                       const std::string& output) {
  ProgramDesc pruned = program;
  pruned.Prune({output}, inputs);
  std::vector<std::string> missing = FindInputs(pruned);
  std::erase_if(missing, [&](const std::string& name) {
    return Contains(inputs, name) || pruned.Root().FindVar(name)->type() != VarType::kLoDTensor;
  });
  return missing;
}

void CheckDeploy(const JobConfig& config, const Programs& programs) {
  std::vector<std::string> inputs = config.deploy_inputs;
  for (const CarryConfig& carry : config.carry) inputs.push_back(carry.to);
  for (size_t i = 0; i < config.deploy_outputs.size(); ++i) {
    const std::string& output = config.deploy_outputs[i];
    const std::vector<std::string> missing = MissingInputs(programs.deploy.program, inputs, output);
    if (missing.empty()) continue;
    ThrowInvalid(
        fmt::format("{}: the deployed output {} needs {}, which is not a deployed input; add "
                    "input: {}, or leave the output out",
                    config.Place(fmt::format("deploy.output[{}]", i)), Quote(output),
                    Quote(missing[0]), Quote(missing[0])));
  }
}

void CheckBinds(const JobConfig& config, const Programs& programs) {
  std::vector<std::string> inputs = programs.train.columns;
  for (const Net& net : programs.tests)
    inputs.insert(inputs.end(), net.columns.begin(), net.columns.end());
  std::set<std::string> bound;
  for (size_t i = 0; i < config.bind.size(); ++i) {
    const BindConfig& bind = config.bind[i];
    const std::string& place = config.Place(fmt::format("bind[{}].var", i));
    if (!Contains(inputs, bind.var)) {
      ThrowInvalid(fmt::format("{}: bind: {} is not an input of the model; its inputs are {}",
                               place, Quote(bind.var), Join(programs.train.columns, ", ")));
    }
    if (!bound.insert(bind.var).second)
      ThrowInvalid(fmt::format("{}: bind: {} is bound twice", place, Quote(bind.var)));
  }
}

// The number of classes in the scores; -1 if only a run knows it, 1 for a vector.
int64_t ClassesOf(const VarDesc& scores) {
  const Shape& shape = scores.shape();
  if (shape.rank() == 0) return -1;
  return shape.rank() == 1 ? 1 : shape[shape.rank() - 1];
}

void CheckScores(const JobConfig& config, size_t index, const BlockDesc& root) {
  const MetricConfig& metric = config.metrics[index];
  const VarDesc *scores = root.FindVar(metric.var), *label = root.FindVar(metric.label);
  if (!scores || !label) return;
  const std::string place = config.Place(fmt::format("metric[{}]", index));
  const auto fail = [&](const std::string& what) {
    ThrowInvalid(fmt::format("{}: metric {}: {}", place, Quote(metric.name), what));
  };
  const bool numbers = ComparesNumbers(metric.kind);
  if (!IsFloating(scores->dtype()))
    fail(fmt::format("the {} {} are {}", numbers ? "numbers" : "scores", Quote(metric.var),
                     scores->meta().ToString()));
  if (numbers) return;
  if (IsFloating(label->dtype()) || IsComplex(label->dtype())) {
    fail(fmt::format("the labels {} are {}, but must be integers", Quote(metric.label),
                     label->meta().ToString()));
  }
  const int64_t classes = ClassesOf(*scores);
  if (metric.kind == MetricKind::kAuc && classes > 2)
    fail(fmt::format("auc is of two classes; {} has {}", Quote(metric.var), classes));
  if (metric.kind == MetricKind::kAccuracy && classes > 0 && metric.k > classes)
    fail(fmt::format("k is {}, but {} has {} classes", metric.k, Quote(metric.var), classes));
}

void CheckMetrics(const JobConfig& config, const Programs& programs) {
  for (size_t i = 0; i < config.metrics.size(); ++i) {
    if (config.metrics[i].label.empty()) continue;
    CheckScores(config, i, programs.train.program.Root());
    for (const Net& net : programs.tests) CheckScores(config, i, net.program.Root());
  }
}

// The variables that a column feeds.
std::vector<std::string> FedBy(const JobConfig& config, const Net& net, const std::string& column) {
  std::vector<std::string> fed;
  for (const std::string& name : net.columns) {
    const auto bound = std::find_if(config.bind.begin(), config.bind.end(),
                                    [&](const BindConfig& bind) { return bind.var == name; });
    if ((bound == config.bind.end() ? name : bound->column) == column) fed.push_back(name);
  }
  return fed;
}

// Whether the op takes the variable as labels that may be mixtures.
bool TakesMixtures(const OpDesc& op, const std::string& label) {
  const OpSpec* spec = DefaultOps().Find(op.type());
  bool takes = spec != nullptr;
  op.ForEachInput([&](const std::string& name, const std::string& slot) {
    takes = takes && (name != label || spec->TakesSoftLabels(op, slot));
  });
  return takes;
}

// Requires that the loss of mixed rows reads their soft labels, and not the label of one row.
void CheckMixup(const JobConfig& config, const Programs& programs) {
  if (!config.train.mixup) return;
  const auto fail = [&](const std::string& what) {
    ThrowInvalid(config.Place("train.mixup") + ": " + what);
  };
  ProgramDesc loss = programs.train.program;
  loss.Prune({config.loss}, programs.train.columns);
  const BlockDesc& root = loss.Root();
  for (const std::string& name : FedBy(config, programs.train, "label")) {
    if (root.FindVar(name) && !root.Uses(name).readers.empty())
      fail(
          fmt::format("the loss reads {}, the label of one row of a mixture; it must read the "
                      "column soft_label, in a loss with soft_label: true",
                      Quote(name)));
  }
  for (const std::string& name : programs.train.columns) {
    const VarDesc* var = root.FindVar(name);
    const bool mixed = !var || (var->dtype() == DType::kFloat32 && var->lod_level() == 0);
    if (mixed || root.Uses(name).readers.empty()) continue;
    fail(
        fmt::format("the loss reads {}, whose rows cannot be mixed; only real numbers (float32, no "
                    "sequences) can",
                    Quote(name)));
  }
  bool read = false;
  for (const std::string& name : FedBy(config, programs.train, "soft_label")) {
    if (!root.FindVar(name)) continue;
    for (const OpDesc* op : root.Uses(name).readers) {
      read = true;
      if (!TakesMixtures(*op, name))
        fail(fmt::format(
            "{} reads {}, and it is not known to be right for labels that are "
            "mixtures; softmax_with_cross_entropy and cross_entropy with soft_label: "
            "true, sigmoid_cross_entropy_with_logits, bce_loss and square_error_cost are",
            op->type(), Quote(name)));
    }
  }
  if (!read) fail("the loss does not read the column soft_label, so mixtures have no labels");
}

// The trained parameters that an optimizer updates.
std::vector<std::string> ParametersOf(const OptimizerConfig& optimizer,
                                      const ProgramDesc& program) {
  std::vector<std::string> names;
  for (const std::string& name : program.Parameters()) {
    const bool trained = program.Root().FindVar(name)->training().trainable;
    if (trained && (optimizer.params.empty() || MatchesAny(optimizer.params, name)))
      names.push_back(name);
  }
  return names;
}

void CheckNoDecay(const JobConfig& config, const ProgramDesc& program) {
  for (const OptimizerConfig& optimizer : config.training.optimizers) {
    const std::vector<std::string> params = ParametersOf(optimizer, program);
    for (const std::string& pattern : optimizer.no_decay) {
      const bool used = std::any_of(params.begin(), params.end(), [&](const std::string& name) {
        return MatchesPattern(name, pattern);
      });
      if (used) continue;
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}: no_decay {} matches none of the parameters: {}",
                              optimizer.place.empty() ? config.source : optimizer.place,
                              Quote(pattern), Join(params, ", ").substr(0, 300)));
    }
  }
}

// --- warnings ---

using Lines = std::vector<std::string>;

void AddDeploy(const JobConfig& config, const Programs& programs, Lines* lines) {
  if (config.deploy_outputs.empty()) return;
  ProgramDesc pruned = programs.deploy.program;
  pruned.Prune(config.deploy_outputs, config.deploy_inputs);
  for (size_t i = 0; i < config.deploy_inputs.size(); ++i) {
    const std::string& input = config.deploy_inputs[i];
    const bool used =
        !pruned.Root().Uses(input).readers.empty() || Contains(config.deploy_outputs, input);
    const bool carried = std::any_of(config.carry.begin(), config.carry.end(),
                                     [&](const CarryConfig& carry) { return carry.to == input; });
    if (used || carried) continue;
    lines->push_back(fmt::format("{}: no deployed output needs the input {}",
                                 config.Place(fmt::format("deploy.input[{}]", i)), Quote(input)));
  }
}

void AddSchedules(const JobConfig& config, int64_t total_steps, Lines* lines) {
  for (const OptimizerConfig& optimizer : config.training.optimizers) {
    for (const ScheduleMark& mark : optimizer.schedule_marks) {
      const bool ends = !mark.then.empty();
      if (ends ? mark.step > total_steps : mark.step >= total_steps) {
        lines->push_back(fmt::format("{}: {} at step {}, but the run ends at step {}", mark.place,
                                     mark.what, mark.step, total_steps));
      } else if (ends && mark.step < total_steps) {
        lines->push_back(fmt::format("{}: {} at step {}; then {}, until the run ends at step {}",
                                     mark.place, mark.what, mark.step, mark.then, total_steps));
      }
    }
  }
}

// Both ends of the range are infinite.
bool NeverClips(const Setting& clip) {
  if (clip.kind != "by_value") return false;
  const double max = clip.Get<double>("max", 0);
  return std::isinf(max) && std::isinf(clip.Get<double>("min", -max));
}

void AddErrorClips(const ProgramDesc& program, Lines* lines) {
  for (int b = 0; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      const auto* clip = dynamic_cast<const ErrorClipByValue*>(block.var(i).error_clip().get());
      if (clip && std::isinf(clip->max()) && std::isinf(clip->min())) {
        lines->push_back(fmt::format("the error_clip of {} can never act: its limits are infinite",
                                     Quote(block.var(i).name())));
      }
    }
  }
}

void AddGradientClips(const JobConfig& config, const ProgramDesc& program, Lines* lines) {
  const BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const TrainingAttr& training = root.var(i).training();
    const std::string& name = root.var(i).name();
    if (!training.gradient_clip || training.gradient_clip->kind == "none") continue;
    if (!training.trainable || NeverClips(*training.gradient_clip)) {
      lines->push_back(
          fmt::format("the gradient_clip of {} can never act: {}", Quote(name),
                      training.trainable ? "its limits are infinite" : "the parameter is frozen"));
    }
  }
  for (const OptimizerConfig& optimizer : config.training.optimizers) {
    if (!optimizer.gradient_clip || optimizer.gradient_clip->kind == "none") continue;
    const std::vector<std::string> params = ParametersOf(optimizer, program);
    const bool shadowed = std::all_of(params.begin(), params.end(), [&](const std::string& name) {
      return root.FindVar(name)->training().gradient_clip.has_value();
    });
    if (!shadowed && !NeverClips(*optimizer.gradient_clip)) continue;
    lines->push_back(fmt::format(
        "{}: the gradient_clip can never act: {}",
        optimizer.place.empty() ? config.source : optimizer.place,
        shadowed ? "each of the parameters has one of its own" : "its limits are infinite"));
  }
}

// The columns that the job describes individually, with their places.
std::vector<std::pair<std::string, std::string>> DescribedColumns(const JobConfig& config) {
  std::vector<std::pair<std::string, std::string>> columns;
  const auto add = [&](const std::string& name, const char* source, size_t i) {
    columns.emplace_back(name, config.Place(fmt::format("train.{}.column[{}]", source, i)));
  };
  if (const auto* csv = std::get_if<CsvOptions>(&config.train.source)) {
    for (size_t i = 0; i < csv->columns.size(); ++i) {
      const CsvColumn& column = csv->columns[i];
      const std::string& name = column.ids.empty() ? column.sequence : column.ids;
      if (!name.empty()) add(name, "csv", i);
    }
  }
  if (const auto* npz = std::get_if<NpzOptions>(&config.train.source)) {
    for (size_t i = 0; i < npz->columns.size(); ++i) {
      const NpzColumn& column = npz->columns[i];
      add(column.name.empty() ? column.key : column.name, "npz", i);
    }
  }
  return columns;
}

void AddUnusedColumns(const JobConfig& config, const Programs& programs, Lines* lines) {
  std::set<std::string> used;
  const auto note = [&](const Net& net) { used.insert(net.columns.begin(), net.columns.end()); };
  note(programs.train);
  for (const Net& net : programs.tests) note(net);
  for (const BindConfig& bind : config.bind) used.insert(bind.column);
  for (const auto& [name, place] : DescribedColumns(config)) {
    if (!used.count(name))
      lines->push_back(
          fmt::format("{}: no input of the model takes the column {}", place, Quote(name)));
  }
}

// Adds likely mistakes of the training program, inputs that no program of the job reads, and
// dropouts that are active in the deployed model.
void AddMistakes(const Programs& programs, const OpRegistry& ops, Lines* lines) {
  const auto reads = [](const Net& net, const std::string& var) {
    return !net.program.Root().Uses(var).readers.empty();
  };
  for (const Mistake& mistake : FindMistakes(programs.train.program, ops)) {
    const bool elsewhere =
        mistake.unread && (reads(programs.deploy, mistake.var) ||
                           std::any_of(programs.tests.begin(), programs.tests.end(),
                                       [&](const Net& net) { return reads(net, mistake.var); }));
    if (!elsewhere) lines->push_back(DescribeMistake(mistake));
  }
  for (const Mistake& mistake : FindDeployedMistakes(programs.deploy.program)) {
    const OpSpec* spec = mistake.op ? ops.Find(mistake.op->type()) : nullptr;
    if (spec && spec->random && mistake.op->Writes(mistake.var))
      lines->push_back("deployed: " + DescribeMistake(mistake));
  }
}

// Whether the optimizer may have a decay that no_decay could turn off. The decay of a custom
// optimizer, or of one made in C++, is unknown.
bool MayDecay(const OptimizerConfig& optimizer) {
  if (optimizer.regularizer || optimizer.setting.kind.empty()) return true;
  const KindsWithFields kinds = OptimizerFields();
  const FieldTable* table = FieldsOfKind(kinds, optimizer.setting.kind);
  if (!table || table->any()) return true;
  return std::any_of(table->fields().begin(), table->fields().end(), [&](const FieldSpec& field) {
    if (!field.name.ends_with("weight_decay") || !field.default_value) return false;
    return optimizer.setting.Get(field.name, AttributeAs<double>(*field.default_value)) != 0;
  });
}

void AddIdleNoDecay(const JobConfig& config, Lines* lines) {
  for (const OptimizerConfig& optimizer : config.training.optimizers) {
    if (optimizer.no_decay.empty() || MayDecay(optimizer)) continue;
    lines->push_back(fmt::format(
        "{}: no_decay does nothing: {} has no weight decay here, and no regularizer",
        optimizer.place.empty() ? config.source : optimizer.place, optimizer.setting.kind));
  }
}

void AddEarlyStop(const JobConfig& config, int64_t total_steps, int64_t steps_per_epoch,
                  Lines* lines) {
  if (!config.early_stop) return;
  const int64_t interval = config.test_interval > 0 ? config.test_interval : steps_per_epoch;
  const int64_t evaluations = (total_steps - 1) / interval + 1 + (config.initial_test ? 1 : 0);
  if (evaluations > config.early_stop->patience) return;
  lines->push_back(fmt::format("{}: the run has {} evaluation{}: a patience of {} can never end it",
                               config.Place("early_stop.patience"), evaluations,
                               evaluations == 1 ? "" : "s", config.early_stop->patience));
}

}  // namespace

std::vector<std::string> ValidateJob(const JobConfig& config, const Programs& programs,
                                     int64_t total_steps, int64_t steps_per_epoch) {
  const ProgramDesc& program = programs.train.program;
  CheckDeploy(config, programs);
  CheckBinds(config, programs);
  CheckMetrics(config, programs);
  CheckMixup(config, programs);
  CheckNoDecay(config, program);
  Lines lines;
  AddDeploy(config, programs, &lines);
  AddSchedules(config, total_steps, &lines);
  AddErrorClips(program, &lines);
  AddGradientClips(config, program, &lines);
  AddIdleNoDecay(config, &lines);
  AddEarlyStop(config, total_steps, steps_per_epoch, &lines);
  AddMistakes(programs, DefaultOps(), &lines);
  AddUnusedColumns(config, programs, &lines);
  for (std::string& line : lines) line = "warning: " + line;
  return lines;
}

uint64_t SnapshotBytes(const ProgramDesc& program) {
  uint64_t bytes = 0;
  const BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    if (!var.persistable() || var.type() != VarType::kLoDTensor || !var.shape().IsKnown()) continue;
    bytes += static_cast<uint64_t>(var.shape().numel()) * SizeOf(var.dtype());
  }
  return bytes;
}

std::string CheckDiskSpace(const JobConfig& config, uint64_t snapshot_bytes, uint64_t free,
                           int64_t total_steps) {
  const std::string& place = config.Place("snapshot_interval");
  const std::string has = fmt::format("{}: a snapshot takes {}, and the disk of {} has {} free",
                                      place, HumanBytes(snapshot_bytes),
                                      Quote(config.SnapshotDirectory(), 300), HumanBytes(free));
  if (snapshot_bytes > free) throw Error(ErrorCode::kIo, has);
  const int64_t taken = 1 + (config.snapshot_interval > 0
                                 ? std::min(total_steps / config.snapshot_interval, INT64_MAX - 1)
                                 : 0);
  // A new snapshot is complete before the oldest is removed; the best one is kept in addition.
  const bool removes = config.keep_snapshots > 0 && config.keep_snapshots < taken;
  const int64_t kept =
      removes ? std::min(taken, config.keep_snapshots + 1 + (config.best ? 1 : 0)) : taken;
  if (snapshot_bytes == 0 || free / snapshot_bytes >= static_cast<uint64_t>(kept)) return "";
  return fmt::format("warning: {}: not enough for the {} that the run keeps", has, kept);
}

std::optional<uint64_t> FreeBytes(const std::string& directory) {
  struct statvfs disk {};
  if (::statvfs(directory.c_str(), &disk) != 0) return std::nullopt;
  return static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
}

}  // namespace coracle::inline internal
