// Converts a solver's text to a job; docs/optimizers.md describes Caffe's solvers.

#include <coracle/convert/caffe/data.h>
#include <coracle/convert/caffe/solver.h>
#include <coracle/convert/for_model.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/layers/layer.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

namespace coracle::caffe {
namespace {

namespace fs = std::filesystem;
using proto::caffe::SolverParameter;

constexpr uint64_t kMaxText = uint64_t{1} << 26;

// The input of every function below: the solver, its path and the options.
struct Source {
  const SolverText& solver;
  const std::string& path;
  const ImportOptions& options;
  const SolverNets& nets;
};

// Statements of the job.
class Statements {
 public:
  void Line(const std::string& line) { text_ += line + "\n"; }
  template <class T>
  void Value(const char* field, const T& value) {
    Line(fmt::format("{}: {}", field, value));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string JobName(const Source& from) {
  const auto names = [](const std::string& name) {
    return !name.empty() && name != "." && name != "..";
  };
  std::string prefix = fs::path(from.solver.def.snapshot_prefix()).filename().string();
  if (names(prefix)) return prefix;
  const std::string stem = fs::path(from.path).stem().string();
  return names(stem) ? stem : "job";
}

// --- data ---

JobData DataOf(const Source& from, const NetInState& state, bool train, ImportedJob& job) {
  const std::vector<Layer> layers = state.Layers();
  std::vector<const Layer*> sources;
  for (const Layer& layer : layers) {
    const std::string& type = layer.def.type();
    const bool reads = type == "Data" || type == "ImageData" || type == "HDF5Data" ||
                       type == "MemoryData" || type == "WindowData";
    if (reads) sources.push_back(&layer);
  }
  if (sources.size() != 1) {
    ThrowInvalid(fmt::format(
        "{}: the net has {} data layers for {}, and a job reads one source; put their data into "
        "the columns of one .npz, and write a job text that reads it",
        state.net->source, sources.size(), train ? "training" : "tests"));
  }
  if (sources.front()->def.top_size() == 0)
    sources.front()->Fail("has no top, which its data needs");
  const ImportOptions& options = from.options;
  JobData data = FindData(*sources.front(), train, {from.path, options.data_dir, options.data});
  const bool known = std::find(job.notes.begin(), job.notes.end(), data.note) != job.notes.end();
  if (!data.note.empty() && !known) job.notes.push_back(data.note);
  if (!data.missing.empty()) job.missing.push_back(data.missing);
  return data;
}

// Caffe continues from the first row; a job's batch ends with the data, and its tests start from
// the first row.
void NoteEnd(const JobData& data, const char* what, int64_t batches, Notes* notes) {
  if (data.rows == 0 || data.batch_size < 1) return;
  const int64_t rest = data.rows % data.batch_size, read = batches * data.batch_size;
  const std::string of =
      fmt::format("{}: {} rows in batches of {}", what, data.rows, data.batch_size);
  if (batches == 0 && rest != 0) {
    notes->push_back(fmt::format(
        "{}: the last batch of an epoch has {}; Caffe fills it with the first rows", of, rest));
  }
  if (read > data.rows) {
    notes->push_back(
        fmt::format("{}: a test ends with them; Caffe's test_iter reads on to {}", of, read));
  }
  if (batches > 0 && read < data.rows) {
    notes->push_back(fmt::format(
        "{}: every test has the first {}; Caffe's goes on where the last one stopped", of, read));
  }
}

// The variables of columns with another name, each once.
std::string BindText(const std::vector<JobData>& all) {
  std::set<std::pair<std::string, std::string>> bound;
  std::string text;
  for (const JobData& data : all) {
    for (const auto& [column, var] : data.bind) {
      if (column == var || !bound.insert({column, var}).second) continue;
      text += fmt::format("bind {{ column: {} var: {} }}\n", Quoted(column), Quoted(var));
    }
  }
  return text;
}

std::string TestSetText(const std::string& stage, const JobData& test, int batches) {
  return fmt::format("test_set {{\n  name: {}\n  data {{ {} }}\n{}  test_iter: {}\n  stage: {}\n}}",
                     Quoted(stage), test.text,
                     test.batch_size > 0 ? fmt::format("  batch_size: {}\n", test.batch_size) : "",
                     batches, Quoted(stage));
}

// A single test becomes the job's `test`, several become test sets with stages.
std::string DataText(const Source& from, ImportedJob& job) {
  const SolverText& s = from.solver;
  const std::vector<NetInState>& states = from.nets.states;
  std::vector<JobData> all = {DataOf(from, states[0], true, job)};
  if (all[0].batch_size < 1)
    ThrowInvalid(from.nets.train->source + ": the training data has no batch_size");
  NoteEnd(all[0], "training data", 0, &job.notes);
  Statements to;
  to.Line("train { " + all[0].text + " }");
  int64_t test_batch_size = 0;
  for (size_t i = 0; i < from.nets.tests; ++i) {
    const std::string& stage = states[i + 1].stage;
    all.push_back(DataOf(from, states[i + 1], false, job));
    const JobData& test = all.back();
    const int batches = s.def.test_iter(static_cast<int>(i));
    if (batches < 1)
      s.Fail("test_iter", fmt::format("must be positive, got {}", batches), static_cast<int>(i));
    NoteEnd(test, "test data", batches, &job.notes);
    to.Line(stage.empty() ? "test { " + test.text + " }" : TestSetText(stage, test, batches));
    if (stage.empty()) test_batch_size = test.batch_size;
  }
  std::string text = to.text() + BindText(all);
  Statements more;
  if (!from.options.data_dir.empty()) {
    std::error_code error;
    const fs::path directory = fs::absolute(from.options.data_dir, error);
    more.Value("data_dir", Quoted(directory.lexically_normal().string()));
  }
  more.Value("batch_size", all[0].batch_size);
  if (test_batch_size > 0) more.Value("test_batch_size", test_batch_size);
  // Caffe reads a database in order, repeatedly.
  if (!all[0].shuffle) more.Value("shuffle", false);
  return text + more.text();
}

// --- results ---

std::string MetricsText(const ImportedNet& net) {
  std::vector<const WrittenNet*> nets = {&net.train, &net.test};
  for (const WrittenNet& test : net.further_tests) nets.push_back(&test);
  std::vector<std::string> vars = net.train.metrics;
  for (const WrittenNet* one : nets) {
    vars.insert(vars.end(), one->metrics.begin(), one->metrics.end());
    vars.insert(vars.end(), one->numbers.begin(), one->numbers.end());
    for (const LossTerm& loss : one->losses)
      if (loss.var != net.loss) vars.push_back(loss.var);
  }
  Statements to;
  const bool taken = std::find(vars.begin(), vars.end(), "loss") != vars.end();
  // A part of the objective is already called "loss".
  if (taken) to.Value("loss_name", Quoted(net.loss));
  std::set<std::string> seen;
  for (const std::string& var : vars) {
    if (seen.insert(var).second)
      to.Line(fmt::format("metric {{ var: {0} name: {0} }}", Quoted(var)));
  }
  return to.text();
}

// The net that is deployed: `statement` for the job, `entries` for the model.
struct Deployed {
  std::string statement, entries;
};

std::vector<std::string> DeployedInputs(const Source& from, const WrittenNet& test,
                                        const std::vector<std::string>& outputs,
                                        const std::vector<std::string>& stages,
                                        const std::string& model_text) {
  std::vector<std::string> inputs = test.inputs;
  std::erase_if(inputs, [&](const std::string& input) {
    return std::find(test.labels.begin(), test.labels.end(), input) != test.labels.end();
  });
  if (inputs.size() < 2) return inputs;
  ModelState state;
  state.train = false;
  state.stages = stages;
  const BuiltModel model = ParseModelText(model_text, from.path, ".", DefaultOps(), state);
  return NeededInputs(model.main, std::move(inputs), outputs);
}

// The outputs of the trained net: the class probabilities of the last loss if it has any, otherwise
// every loss.
Deployed Deploy(const Source& from, const ImportedNet& net) {
  WrittenNet test = net.test;
  const auto softmax = std::find_if(
      test.results.rbegin(), test.results.rend(),
      [](const LossResult& result) { return result.kind == LossResult::Kind::kSoftmax; });
  if (softmax != test.results.rend()) test.results = {LossResult(*softmax)};
  test.outputs.clear();
  const NetInUse use = ResultsInUse(test, net.text);
  std::vector<std::string> stages = {"deploy"};
  if (from.nets.tests > 1) stages.push_back(from.nets.states[1].stage);
  Deployed result;
  for (std::string entry : use.entries) {
    entry.resize(entry.size() - 2);
    result.entries += entry + " include_if { phase: TEST stage: \"deploy\" } }\n";
  }
  const std::vector<std::string> inputs =
      DeployedInputs(from, test, use.outputs, stages, net.text + result.entries);
  if (inputs.empty() || use.outputs.empty()) return {};
  Entry deploy("deploy");
  for (const std::string& input : inputs) deploy.Text("input", input);
  for (const std::string& output : use.outputs) deploy.Text("output", output);
  for (const std::string& stage : stages) deploy.Text("stage", stage);
  result.statement = "deploy { " + deploy.Body() + " }\n";
  return result;
}

// --- the training ---

// With force_backward, Caffe also computes gradients of fixed parameters and includes them in
// its norm.
void CheckForcedGradients(const SolverNets& nets) {
  if (!nets.train->force_backward) return;
  for (const Layer& layer : nets.states[0].Layers()) {
    for (const auto& param : layer.def.param()) {
      if (param.lr_mult() != 0 || layer.def.type() == "BatchNorm") continue;
      layer.Fail({"param"},
                 "lr_mult 0 does not go with force_backward and clip_gradients: Caffe counts the "
                 "gradient in the norm, and it is not computed here; leave out force_backward");
    }
  }
}

std::string TrainingText(const Source& from) {
  const SolverText& s = from.solver;
  const SolverParameter& p = s.def;
  Statements to;
  to.Line("optimizer {");
  to.Line("  " + OptimizerText(s));
  const std::string schedule = ScheduleText(s), regularizer = RegularizerText(s);
  if (!schedule.empty()) to.Line("  schedule { " + schedule + " }");
  if (!regularizer.empty()) to.Line("  regularizer { " + regularizer + " }");
  if (p.clip_gradients() == 0)
    s.Fail("clip_gradients", "must not be 0, which makes every gradient 0");
  if (p.clip_gradients() > 0) {
    CheckForcedGradients(from.nets);
    to.Line(fmt::format("  gradient_clip {{ by_global_norm {{ clip_norm: {} }} }}",
                        Number(p.clip_gradients())));
  }
  to.Line("}");
  if (p.iter_size() < 1)
    s.Fail("iter_size", fmt::format("must be positive, got {}", p.iter_size()));
  if (p.iter_size() > 1) {
    to.Value("iter_size", p.iter_size());
    if (p.clip_gradients() > 0) to.Value("clip_before_average", true);
  }
  return to.text();
}

std::string NumbersText(const Source& from) {
  const SolverText& s = from.solver;
  const SolverParameter& p = s.def;
  Statements to;
  to.Value("max_iter", p.max_iter());
  if (from.nets.tests > 0) {
    if (from.nets.tests == 1) to.Value("test_iter", p.test_iter(0));
    to.Value("test_interval", p.test_interval());
    if (p.test_initialization()) to.Value("initial_test", true);
  }
  to.Value("display", p.display() > 0 ? p.display() : p.max_iter());
  if (p.has_average_loss()) {
    if (p.average_loss() < 1) s.Fail("average_loss", "must be positive");
    to.Value("average_loss", p.average_loss());
  }
  if (p.snapshot() < 0) s.Fail("snapshot", "must not be negative");
  if (p.snapshot() > 0) to.Value("snapshot_interval", p.snapshot());
  to.Value("keep_snapshots", 0);
  if (!p.snapshot_after_train()) to.Value("snapshot_after_train", false);
  if (p.random_seed() >= 0) to.Value("random_seed", p.random_seed());
  if (p.debug_info() || from.nets.train->debug_info) to.Value("debug_info", true);
  return to.text();
}

// The settings that have no effect here.
void NoteIgnored(const SolverText& s, Notes* notes) {
  const SolverParameter& p = s.def;
  if (p.has_solver_mode() && p.solver_mode() == SolverParameter::GPU)
    notes->push_back(s.Where("solver_mode") +
                     ": solver_mode: GPU is ignored: training runs on the CPU");
  if (p.snapshot_format() == SolverParameter::HDF5 && p.has_snapshot_format()) {
    notes->push_back(s.Where("snapshot_format") +
                     ": snapshot_format: HDF5 is ignored: snapshots have Coracle's format");
  }
  if (p.snapshot_diff())
    notes->push_back(s.Where("snapshot_diff") +
                     ": snapshot_diff is ignored: snapshots hold no gradients");
}

// The files of weights. The options name them; without any, the solver does, with commas between
// the names.
std::vector<std::string> WeightFiles(const Source& from) {
  const SolverText& s = from.solver;
  std::vector<std::string> files = from.options.weights;
  const int named = files.empty() ? s.def.weights_size() : 0;
  for (int i = 0; i < named; ++i) {
    for (const std::string& part : Split(s.def.weights(i), ',')) {
      const std::string name(Trim(part));
      const std::string file = FindFile(name, from.path);
      if (file.empty()) {
        throw Error(ErrorCode::kNotFound,
                    fmt::format("{}: weights: file {} does not exist; name another as the second "
                                "argument of `convert`",
                                s.Where("weights", i), Quote(name, 300)));
      }
      files.push_back(file);
    }
  }
  return files;
}

}  // namespace

ImportedJob ImportSolverText(std::string_view text, const std::string& path,
                             const ImportOptions& options, const std::string& npz) {
  return ForModel(path, [&] {
    const SolverText solver = ParseSolver(text, path);
    ImportedJob job;
    const SolverNets nets = ReadSolverNets(solver, path, options, &job.notes);
    const Source from = {solver, path, options, nets};
    job.net = ImportStates(nets.states[0], {nets.states.begin() + 1, nets.states.end()}, options);
    job.notes.insert(job.notes.end(), job.net.notes.begin(), job.net.notes.end());
    const int max_iter = solver.def.max_iter();
    if (max_iter < 1) solver.Fail("max_iter", fmt::format("must be positive, got {}", max_iter));
    if (job.net.loss.empty())
      ThrowInvalid(nets.train->source + ": the net has no loss to minimise");
    Statements begin;
    begin.Line(fmt::format("# From {}.", PrintableLine(fs::path(path).filename().string())));
    begin.Value("name", Quoted(JobName(from)));
    job.text = begin.text() + DataText(from, job);
    job.text += "loss: " + Quoted(job.net.loss) + "\n";
    job.text += MetricsText(job.net) + TrainingText(from) + NumbersText(from);
    NoteIgnored(solver, &job.notes);
    const Deployed deployed = Deploy(from, job.net);
    job.text += deployed.statement;
    job.weights = WeightFiles(from);
    if (!job.weights.empty() && !npz.empty()) job.text += "weights { file: " + Quoted(npz) + " }\n";
    job.text += "model_text: \"\"\"\n" + job.net.text + deployed.entries + "\"\"\"\n";
    return job;
  });
}

ImportedJob ImportSolver(const std::string& path, const ImportOptions& options,
                         const std::string& npz) {
  return ForModel(path,
                  [&] { return ImportSolverText(ReadFile(path, kMaxText), path, options, npz); });
}

}  // namespace coracle::caffe
