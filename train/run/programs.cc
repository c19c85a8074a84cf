#include <coracle/framework/base/file.h>
#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/layers/layer.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/train/data/feeder.h>
#include <coracle/train/run/programs.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

BuiltModel LoadModel(const JobConfig& config, const OpRegistry& ops, const ModelState& state) {
  if (config.model.empty())
    return ParseModelText(config.model_text, config.source, config.directory, ops, state);
  const std::string file = config.model == "-" ? "-" : config.FilePath(config.model);
  if (file != "-" && !FileExists(file)) {
    throw Error(ErrorCode::kNotFound, fmt::format("{}: model: there is no file {}",
                                                  config.Place("model"), Quote(file, 300)));
  }
  return ReadModelText(file, ops, state);
}

class ProgramBuilder {
 public:
  ProgramBuilder(const JobConfig& config, const TrainOptions& options)
      : config_(config), options_(options), ops_(options.ops ? *options.ops : DefaultOps()) {}

  Programs Build() {
    ModelState state;
    state.stages = config_.stages;
    BuiltModel model = LoadModel(config_, ops_, state);
    programs_.startup = std::move(model.startup);
    RequireStartup(model.main);
    Decorate(model.main, programs_.startup);
    programs_.train = MakeNet(std::move(model.main), model.inputs);
    std::vector<std::vector<std::string>> stages;
    for (const TestSetConfig& set : config_.TestSets()) stages.push_back(set.stages);
    for (const auto& names : stages) programs_.tests.push_back(TestNet(names, model.has_rules));
    // A job that deploys nothing builds this program like the one of the first test set.
    const bool deploys = !config_.deploy_outputs.empty() || stages.empty();
    programs_.deploy = TestNet(deploys ? config_.deploy_stages : stages[0], model.has_rules);
    CheckNames();
    Freeze();
    programs_.startup.random_seed = config_.random_seed;
    Minimize();
    return std::move(programs_);
  }

 private:
  void RequireStartup(const ProgramDesc& main) const {
    if (programs_.startup.Root().NumOps() > 0 || main.Parameters().empty() || options_.resume)
      return;
    ThrowInvalid(fmt::format(
        "{}: nothing initialises {}: the model is a program without its startup program; give a "
        "model text",
        config_.Place("model"), Quote(main.Parameters().front())));
  }

  // Variables that are printed, carried or deployed stay float32.
  void Decorate(ProgramDesc& program, ProgramDesc& startup) const {
    if (!config_.mixed_precision) return;
    MixedPrecisionOptions options = config_.mixed_precision->options;
    options.ops = options_.ops;
    std::vector<std::string> kept = config_.deploy_outputs;
    kept.push_back(config_.loss);
    for (const MetricConfig& metric : config_.metrics) kept.push_back(metric.var);
    for (const CarryConfig& carry : config_.carry) kept.push_back(carry.from);
    std::erase_if(kept, [&](const std::string& name) { return !program.Root().FindVar(name); });
    options.float32_vars.insert(options.float32_vars.end(), kept.begin(), kept.end());
    try {
      DecorateMixedPrecision(program, startup, options);
    } catch (const Error& e) {
      throw e.WithPrefix(config_.Place("mixed_precision"));
    }
  }

  Net MakeNet(ProgramDesc program, std::vector<std::string> inputs) const {
    Net net;
    net.program = std::move(program);
    net.program.random_seed = config_.random_seed;
    net.columns = inputs.empty() ? FindInputs(net.program) : std::move(inputs);
    for (const CarryConfig& carry : config_.carry) std::erase(net.columns, carry.to);
    const BlockDesc& root = net.program.Root();
    net.has_loss = root.FindVar(config_.loss) != nullptr;
    for (const MetricConfig& metric : config_.metrics) {
      const bool labelled = metric.label.empty() || root.FindVar(metric.label);
      if (root.FindVar(metric.var) && labelled) net.metrics.push_back(metric);
    }
    return net;
  }

  // The forward program for a test set or for deployment.
  Net TestNet(const std::vector<std::string>& stages, bool has_rules) const {
    if (!has_rules) {
      Net net = programs_.train;
      net.program = net.program.CloneForTest();
      return net;
    }
    ModelState state;
    state.train = false;
    state.stages = stages;
    BuiltModel model = LoadModel(config_, ops_, state);
    ProgramDesc startup = model.startup;  // the training program's startup makes the parameters
    Decorate(model.main, startup);
    CheckShared(model.main);
    return MakeNet(model.main.CloneForTest(), model.inputs);
  }

  // The persistable variables of a test program must be those of the training program.
  void CheckShared(const ProgramDesc& test) const {
    const BlockDesc& root = programs_.train.program.Root();
    for (size_t i = 0; i < test.Root().NumVars(); ++i) {
      const VarDesc& var = test.Root().var(i);
      if (!var.persistable()) continue;
      const VarDesc* trained = root.FindVar(var.name());
      if (trained && trained->meta() == var.meta()) continue;
      ThrowInvalid(fmt::format(
          "{}: {} of the phase TEST is {}, {}; include_if and exclude_if may not change what a "
          "parameter is",
          config_.Place("model"), Quote(var.name()), var.meta().ToString(),
          trained ? "but " + trained->meta().ToString() + " in training"
                  : "but nothing trains it"));
    }
  }

  bool AnyHas(const std::string& name) const {
    auto has = [&name](const Net& net) { return net.program.Root().FindVar(name) != nullptr; };
    return has(programs_.train) || std::any_of(programs_.tests.begin(), programs_.tests.end(), has);
  }

  // A metric may exist in only some of the programs.
  void RequireAny(const std::string& place, const std::string& what,
                  const std::string& name) const {
    if (!AnyHas(name)) RequireVar(programs_.train.program, place, what, name);
  }

  // A metric that is a mean must hold one number. If the program leaves its shape open, the run
  // checks it.
  void RequireNumber(const std::string& place, const MetricConfig& metric) const {
    const VarDesc* var = programs_.train.program.Root().FindVar(metric.var);
    if (!var) return;
    if (!var->shape().IsKnown() ? var->shape().rank() == 1 : var->shape().numel() == 1) return;
    ThrowInvalid(fmt::format("{}: metric {} must hold one number, a mean over the batch; it is {}",
                             place, Quote(metric.var), var->meta().ToString()));
  }

  void CheckNames() const {
    const ProgramDesc& main = programs_.train.program;
    auto require = [&](const std::string& field, const std::string& what, const std::string& name) {
      RequireVar(main, config_.Place(field), what, name);
    };
    CheckCarried();
    require("loss", "loss", config_.loss);
    for (size_t i = 0; i < config_.metrics.size(); ++i) {
      const MetricConfig& metric = config_.metrics[i];
      const std::string field = fmt::format("metric[{}]", i);
      RequireAny(config_.Place(field + ".var"), "metric", metric.var);
      if (!metric.label.empty())
        RequireAny(config_.Place(field + ".label"), "metric label", metric.label);
      else
        RequireNumber(config_.Place(field + ".var"), metric);
    }
    const ProgramDesc& deploy = programs_.deploy.program;
    for (size_t i = 0; i < config_.deploy_inputs.size(); ++i)
      RequireVar(deploy, config_.Place(fmt::format("deploy.input[{}]", i)), "deploy input",
                 config_.deploy_inputs[i]);
    for (size_t i = 0; i < config_.deploy_outputs.size(); ++i)
      RequireVar(deploy, config_.Place(fmt::format("deploy.output[{}]", i)), "deploy output",
                 config_.deploy_outputs[i]);
    for (size_t i = 0; i < config_.bind.size(); ++i)
      RequireAny(config_.Place(fmt::format("bind[{}].var", i)), "bind", config_.bind[i].var);
    const auto& checkpoints = config_.recompute.checkpoints;
    for (size_t i = 0; i < checkpoints.size(); ++i)
      require(fmt::format("recompute.checkpoint[{}]", i), "recompute checkpoint", checkpoints[i]);
  }

  void CheckCarried() const {
    std::vector<std::string> inputs = FindInputs(programs_.train.program);
    for (size_t i = 0; i < config_.carry.size(); ++i) {
      const std::string& to = config_.carry[i].to;
      if (std::erase(inputs, to) > 0) continue;
      ThrowInvalid(
          fmt::format("{}: carry to {}: it is not an input of the model, or is given twice",
                      config_.Place(fmt::format("carry[{}]", i)), Quote(to)));
    }
  }

  static Regex FreezePattern(const std::string& text, const std::string& place) {
    try {
      return Regex(text);
    } catch (const Error& e) {
      throw Error(e.code(), place + ": freeze " + e.message());
    }
  }

  // Freezes the parameters whose whole name matches a pattern.
  void Freeze() {
    BlockDesc& root = programs_.train.program.Root();
    for (size_t i = 0; i < config_.freeze.size(); ++i) {
      const std::string place = config_.Place(fmt::format("freeze[{}]", i));
      const Regex pattern = FreezePattern(config_.freeze[i], place);
      size_t frozen = 0;
      for (const std::string& name : programs_.train.program.Parameters()) {
        if (!pattern.MatchesAll(name)) continue;
        VarDesc& var = *root.FindVar(name);
        var.MutableTraining().trainable = false;
        var.SetStopGradient(true);
        ++frozen;
      }
      if (frozen > 0) continue;
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}: freeze {} matches none of the parameters: {}", place,
                              Quote(config_.freeze[i]),
                              Join(programs_.train.program.Parameters(), ", ").substr(0, 300)));
    }
  }

  void Minimize() {
    ProgramDesc& main = programs_.train.program;
    MinimizeOptions minimize;
    minimize.ops = options_.ops;
    minimize.recompute = config_.recompute;
    minimize.recompute.batch_size = config_.batch_size;
    GradScalerOptions options{.enabled = false};
    if (config_.mixed_precision && config_.mixed_precision->scaling)
      options = *config_.mixed_precision->scaling;
    LossScaling scaling(main, programs_.startup, options);
    programs_.training =
        AppendedTraining::Append(config_.training, Variable::Of(main.Root(), config_.loss),
                                 config_.Place("loss"), scaling, programs_.startup, minimize);
  }

  const JobConfig& config_;
  const TrainOptions& options_;
  const OpRegistry& ops_;
  Programs programs_;
};

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

const VarDesc& RequireVar(const ProgramDesc& program, const std::string& place,
                          const std::string& what, const std::string& name) {
  const BlockDesc& root = program.Root();
  if (const VarDesc* var = root.FindVar(name)) return *var;
  std::vector<std::string> names;
  names.reserve(root.NumVars());
  for (size_t i = 0; i < root.NumVars(); ++i) names.push_back(root.var(i).name());
  throw Error(ErrorCode::kNotFound, fmt::format("{}: {} {}: the model has no such variable{}",
                                                place, what, Quote(name), DidYouMean(name, names)));
}

Programs BuildPrograms(const JobConfig& config, const TrainOptions& options) {
  const TraceSpan span("train", "build programs");
  return ProgramBuilder(config, options).Build();
}

}  // namespace coracle
