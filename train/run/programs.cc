#include <coracle/framework/base/file.h>
#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/layers/layer.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/quantize/fake_ops.h>
#include <coracle/train/job/names.h>
#include <coracle/train/run/feeder.h>
#include <coracle/train/run/program_names.h>
#include <coracle/train/run/programs.h>
#include <fmt/format.h>

#include <utility>

namespace coracle::inline internal {
namespace {

BuiltModel LoadModel(const JobConfig& config, const OpRegistry& ops, const ModelState& state) {
  if (config.model.empty())
    return ParseModelText(config.model_text, config.source, config.directory, ops, state);
  const std::string file = config.model == "-" ? "-" : config.FilePath(config.model);
  if (file != "-" && !FileExists(file)) {
    throw Error(ErrorCode::kNotFound, fmt::format("{}: model: file {} does not exist",
                                                  config.Place("model"), Quote(file, 300)));
  }
  return ReadModelText(file, ops, state);
}

void RequireStartup(const JobConfig& config, const ProgramDesc& main, const ProgramDesc& startup) {
  if (startup.Root().NumOps() > 0 || main.Parameters().empty()) return;
  ThrowInvalid(fmt::format(
      "{}: nothing initialises {}: the model is a program without its startup program; give a "
      "model text",
      config.Place("model"), Quote(main.Parameters().front())));
}

// Variables that are printed, carried or deployed stay float32.
void Decorate(const JobConfig& config, const OpRegistry* ops, ProgramDesc& program,
              ProgramDesc& startup) {
  if (!config.mixed_precision) return;
  MixedPrecisionOptions options = config.mixed_precision->options;
  options.ops = ops;
  std::vector<std::string> kept = config.deploy_outputs;
  kept.push_back(config.loss);
  for (const MetricConfig& metric : config.metrics) kept.push_back(metric.var);
  for (const CarryConfig& carry : config.carry) kept.push_back(carry.from);
  std::erase_if(kept, [&](const std::string& name) { return !program.Root().FindVar(name); });
  options.float32_vars.insert(options.float32_vars.end(), kept.begin(), kept.end());
  try {
    DecorateMixedPrecision(program, startup, options);
  } catch (const Error& e) {
    throw e.WithPrefix(config.Place("mixed_precision"));
  }
}

// Lets the products of a job that quantises read rounded operands. Returns the learned steps.
std::vector<std::string> Round(const JobConfig& config, const OpRegistry* ops, ProgramDesc& program,
                               ProgramDesc& startup) {
  if (!config.quantize) return {};
  QuantizeTrainingOptions options = config.quantize->options;
  options.ops = ops;
  try {
    return QuantizeForTraining(program, startup, options).learned_steps;
  } catch (const Error& e) {
    throw e.WithPrefix(config.Place("quantize"));
  }
}

Net MakeNet(const JobConfig& config, ProgramDesc program, std::vector<std::string> inputs) {
  Net net;
  net.program = std::move(program);
  net.program.random_seed = config.random_seed;
  net.columns = inputs.empty() ? FindInputs(net.program) : std::move(inputs);
  for (const CarryConfig& carry : config.carry) std::erase(net.columns, carry.to);
  const BlockDesc& root = net.program.Root();
  net.has_loss = root.FindVar(config.loss) != nullptr;
  for (const MetricConfig& metric : config.metrics) {
    const bool labelled = metric.label.empty() || root.FindVar(metric.label);
    if (root.FindVar(metric.var) && labelled) net.metrics.push_back(metric);
  }
  return net;
}

// The persistable variables of a test program must be those of the training program.
void CheckShared(const JobConfig& config, const ProgramDesc& train, const ProgramDesc& test) {
  for (size_t i = 0; i < test.Root().NumVars(); ++i) {
    const VarDesc& var = test.Root().var(i);
    if (!var.persistable()) continue;
    const VarDesc* trained = train.Root().FindVar(var.name());
    if (trained && trained->meta() == var.meta()) continue;
    ThrowInvalid(fmt::format(
        "{}: {} of the phase TEST is {}, {}; include_if and exclude_if may not change what a "
        "parameter is",
        config.Place("model"), Quote(var.name()), var.meta().ToString(),
        trained ? "but " + trained->meta().ToString() + " in training" : "but nothing trains it"));
  }
}

// Makes the forward programs of a model, for test sets and for deployment.
class TestNets {
 public:
  // `model` is the model of training, as it was read; `train` is its program before backward. They
  // must outlive this object.
  TestNets(const JobConfig& config, const TrainOptions& options, const BuiltModel& model,
           const Net& train)
      : config_(config), options_(options), model_(model), train_(train) {}

  // As training computes in a test.
  Net Make(const std::vector<std::string>& stages) const {
    if (model_.has_rules) return Build(stages, true, true);
    Net net = train_;
    net.program = net.program.CloneForTest();
    return net;
  }
  // Without rounding.
  Net MakeFloat(const std::vector<std::string>& stages) const {
    return config_.quantize ? Build(stages, false, true) : Make(stages);
  }
  // With rounding in float32.
  Net MakeRounding(const std::vector<std::string>& stages) const {
    return Build(stages, true, false);
  }

 private:
  // Reads a model with rules of phases again.
  Net Build(const std::vector<std::string>& stages, bool round, bool decorate) const {
    ModelState state;
    state.train = false;
    state.stages = stages;
    const OpRegistry& ops = options_.ops ? *options_.ops : DefaultOps();
    BuiltModel model = model_.has_rules ? LoadModel(config_, ops, state) : model_;
    ProgramDesc startup = model.startup;  // the training program's startup makes the parameters
    if (round) Round(config_, options_.ops, model.main, startup);
    if (decorate) Decorate(config_, options_.ops, model.main, startup);
    CheckShared(config_, train_.program, model.main);
    return MakeNet(config_, model.main.CloneForTest(), model.inputs);
  }

  const JobConfig& config_;
  const TrainOptions& options_;
  const BuiltModel& model_;
  const Net& train_;
};

Regex FreezePattern(const std::string& text, const std::string& place) {
  try {
    return Regex(text);
  } catch (const Error& e) {
    throw Error(e.code(), place + ": freeze " + e.message());
  }
}

// Freezes the parameters whose whole name matches a pattern.
void Freeze(const JobConfig& config, ProgramDesc& main) {
  for (size_t i = 0; i < config.freeze.size(); ++i) {
    const std::string place = config.Place(fmt::format("freeze[{}]", i));
    const Regex pattern = FreezePattern(config.freeze[i], place);
    size_t frozen = 0;
    for (const std::string& name : main.Parameters()) {
      if (!pattern.MatchesAll(name)) continue;
      VarDesc& var = *main.Root().FindVar(name);
      var.MutableTraining().trainable = false;
      var.SetStopGradient(true);
      ++frozen;
    }
    if (frozen > 0) continue;
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: freeze {} matches none of the parameters: {}", place,
                            Quote(config.freeze[i]), Join(main.Parameters(), ", ").substr(0, 300)));
  }
}

// The learned step of a frozen weight is frozen.
void FreezeSteps(const std::vector<std::string>& steps, ProgramDesc& main) {
  for (const std::string& step : steps) {
    const VarDesc* weight = main.Root().FindVar(WeightOfStep(step));
    if (!weight || !weight->is_parameter() || weight->training().trainable) continue;
    VarDesc& var = *main.Root().FindVar(step);
    var.MutableTraining().trainable = false;
    var.SetStopGradient(true);
  }
}

// Learned steps do not decay. The optimizer of the weight updates its step, and the first one the
// steps of activations.
TrainingConfig WithSteps(const std::vector<std::string>& steps, TrainingConfig training) {
  for (const std::string& step : steps) {
    OptimizerConfig* updates = &training.optimizers.front();
    bool named = false;
    for (OptimizerConfig& optimizer : training.optimizers) {
      optimizer.no_decay.push_back(step);
      named |= optimizer.params.empty() || MatchesAny(optimizer.params, step);
      if (MatchesAny(optimizer.params, WeightOfStep(step))) updates = &optimizer;
    }
    if (!named) updates->params.push_back(step);
  }
  return training;
}

// Appends backward and the optimizer's ops.
AppendedTraining Minimize(const JobConfig& config, const OpRegistry* ops,
                          const std::vector<std::string>& steps, ProgramDesc& main,
                          ProgramDesc& startup) {
  MinimizeOptions minimize;
  minimize.ops = ops;
  minimize.recompute = config.recompute;
  minimize.recompute.batch_size = config.batch_size;
  GradScalerOptions options{.enabled = false};
  if (config.mixed_precision && config.mixed_precision->scaling)
    options = *config.mixed_precision->scaling;
  LossScaling scaling(main, startup, options);
  return AppendedTraining::Append(WithSteps(steps, config.training),
                                  Variable::Of(main.Root(), config.loss), config.Place("loss"),
                                  scaling, startup, minimize);
}

}  // namespace

Tensor ShareOfRows(const BatchReader& reader, DType dtype) {
  const double share =
      static_cast<double>(reader.own_rows()) / static_cast<double>(reader.rows_of_all());
  return Tensor::Of<double>({1}, {share}).Cast(dtype);
}

std::vector<std::string> Net::Feeds(const JobConfig& config) const {
  std::vector<std::string> feeds = columns;
  for (const CarryConfig& carry : config.carry) feeds.push_back(carry.to);
  return feeds;
}

Programs::Programs() = default;

Programs BuildPrograms(const JobConfig& config, const TrainOptions& options) {
  const TraceSpan span("train", "build programs");
  Programs programs;
  ModelState state;
  state.stages = config.stages;
  const BuiltModel model = LoadModel(config, options.ops ? *options.ops : DefaultOps(), state);
  programs.startup = model.startup;
  ProgramDesc main = model.main;
  if (!options.resume) RequireStartup(config, main, programs.startup);
  const std::vector<std::string> steps = Round(config, options.ops, main, programs.startup);
  Decorate(config, options.ops, main, programs.startup);
  programs.train = MakeNet(config, std::move(main), model.inputs);
  const TestNets nets(config, options, model, programs.train);
  const std::vector<TestSetConfig> sets = config.TestSets();
  for (const TestSetConfig& set : sets) programs.tests.push_back(nets.Make(set.stages));
  // A job that deploys nothing builds this program like the one of the first test set.
  const bool deploys = !config.deploy_outputs.empty() || sets.empty();
  const auto& deploy_stages = deploys ? config.deploy_stages : sets[0].stages;
  programs.deploy = nets.MakeFloat(deploy_stages);
  if (config.quantize) {
    RoundingPrograms& rounding = programs.rounding.emplace();
    rounding.deploy = nets.MakeRounding(deploy_stages);
    if (!sets.empty()) rounding.eval = nets.MakeRounding(sets[0].stages);
    rounding.first_steps =
        InitializeLearnedSteps(programs.train.program, options.ops ? *options.ops : DefaultOps());
  }
  CheckNames(config, programs);
  Freeze(config, programs.train.program);
  FreezeSteps(steps, programs.train.program);
  programs.startup.random_seed = config.random_seed;
  programs.training =
      Minimize(config, options.ops, steps, programs.train.program, programs.startup);
  return programs;
}

}  // namespace coracle::inline internal
