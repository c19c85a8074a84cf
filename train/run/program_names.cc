#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/run/feeder.h>
#include <coracle/train/run/program_names.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace coracle::inline internal {
namespace {

// Throws kNotFound if the root block does not have the variable.
void RequireVar(const ProgramDesc& program, const std::string& place, const std::string& what,
                const std::string& name) {
  const BlockDesc& root = program.Root();
  if (root.FindVar(name)) return;
  std::vector<std::string> names;
  names.reserve(root.NumVars());
  for (size_t i = 0; i < root.NumVars(); ++i) names.push_back(root.var(i).name());
  throw Error(ErrorCode::kNotFound, fmt::format("{}: {} {}: the model has no such variable{}",
                                                place, what, Quote(name), DidYouMean(name, names)));
}

// A metric or a bound input may exist in only some of the programs.
void RequireAny(const Programs& programs, const std::string& place, const std::string& what,
                const std::string& name) {
  const auto has = [&name](const Net& net) { return net.program.Root().FindVar(name) != nullptr; };
  if (!std::any_of(programs.tests.begin(), programs.tests.end(), has))
    RequireVar(programs.train.program, place, what, name);
}

// A metric that is a mean must hold one number. If the program leaves its shape open, the run
// checks it.
void RequireNumber(const Programs& programs, const std::string& place, const MetricConfig& metric) {
  const VarDesc* var = programs.train.program.Root().FindVar(metric.var);
  if (!var) return;
  if (!var->shape().IsKnown() ? var->shape().rank() == 1 : var->shape().numel() == 1) return;
  ThrowInvalid(fmt::format("{}: metric {} must hold one number, a mean over the batch; it is {}",
                           place, Quote(metric.var), var->meta().ToString()));
}

void CheckCarried(const JobConfig& config, const ProgramDesc& main) {
  std::vector<std::string> inputs = FindInputs(main);
  for (size_t i = 0; i < config.carry.size(); ++i) {
    const std::string& to = config.carry[i].to;
    if (std::erase(inputs, to) > 0) continue;
    ThrowInvalid(fmt::format("{}: carry to {}: it is not an input of the model, or is given twice",
                             config.Place(fmt::format("carry[{}]", i)), Quote(to)));
  }
}

void CheckMetrics(const JobConfig& config, const Programs& programs) {
  for (size_t i = 0; i < config.metrics.size(); ++i) {
    const MetricConfig& metric = config.metrics[i];
    const std::string field = fmt::format("metric[{}]", i);
    RequireAny(programs, config.Place(field + ".var"), "metric", metric.var);
    if (!metric.label.empty())
      RequireAny(programs, config.Place(field + ".label"), "metric label", metric.label);
    else
      RequireNumber(programs, config.Place(field + ".var"), metric);
  }
}

// Requires each variable of a list: the places are FIELD[0], FIELD[1], ...
void RequireVars(const JobConfig& config, const ProgramDesc& program, const std::string& field,
                 const std::string& what, const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i)
    RequireVar(program, config.Place(fmt::format("{}[{}]", field, i)), what, names[i]);
}

}  // namespace

void CheckNames(const JobConfig& config, const Programs& programs) {
  const ProgramDesc &main = programs.train.program, &deploy = programs.deploy.program;
  CheckCarried(config, main);
  RequireVar(main, config.Place("loss"), "loss", config.loss);
  CheckMetrics(config, programs);
  RequireVars(config, deploy, "deploy.input", "deploy input", config.deploy_inputs);
  RequireVars(config, deploy, "deploy.output", "deploy output", config.deploy_outputs);
  for (size_t i = 0; i < config.bind.size(); ++i)
    RequireAny(programs, config.Place(fmt::format("bind[{}].var", i)), "bind", config.bind[i].var);
  RequireVars(config, main, "recompute.checkpoint", "recompute checkpoint",
              config.recompute.checkpoints);
}

}  // namespace coracle::inline internal
