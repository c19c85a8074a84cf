// Converts a solver's text to a job; docs/optimizers.md describes Caffe's solvers.

#include <coracle/convert/caffe/data.h>
#include <coracle/convert/caffe/import.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/layers/layer.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <deque>
#include <filesystem>
#include <set>
#include <utility>

namespace coracle::caffe {
namespace {

namespace fs = std::filesystem;
using proto::caffe::NetState;
using proto::caffe::SolverParameter;

constexpr uint64_t kMaxText = uint64_t{1} << 26;

void RequireNotNegative(const SolverText& s, const char* field, double value) {
  if (!(value >= 0) || !std::isfinite(value))
    s.Fail(field, fmt::format("must be finite and not negative, got {}", value));
}

// `momentum { ... }`, see docs/optimizers.md for the solver types.
std::string OptimizerText(const SolverText& s) {
  const SolverParameter& p = s.def;
  RequireNotNegative(s, "base_lr", static_cast<double>(p.base_lr()));
  RequireNotNegative(s, "momentum", static_cast<double>(p.momentum()));
  RequireNotNegative(s, "delta", static_cast<double>(p.delta()));
  const std::string& type = p.type();
  const auto make = [&](const char* kind, Entry entry) {
    return fmt::format("{} {{ {} }}", kind, entry.Body());
  };
  const auto no_momentum = [&] {
    if (p.momentum() != 0) s.Fail("momentum", "does not go with the type " + type);
  };
  Entry rate("");
  rate.Float("learning_rate", p.base_lr());
  if (type == "SGD" || type == "Nesterov") {
    if (type == "SGD" && p.momentum() == 0) return make("sgd", rate);
    rate.Float("momentum", p.momentum());
    if (type == "Nesterov") rate.Bool("use_nesterov", true);
    return make("momentum", rate.Bool("velocity_holds_rate", true));
  }
  if (type == "AdaGrad") {
    no_momentum();
    return make("adagrad", rate.Float("epsilon", p.delta()));
  }
  if (type == "RMSProp") {
    no_momentum();
    if (!(p.rms_decay() >= 0 && p.rms_decay() < 1))
      s.Fail("rms_decay", fmt::format("must lie in [0, 1), got {}", p.rms_decay()));
    return make("decayed_adagrad", rate.Float("decay", p.rms_decay()).Float("epsilon", p.delta()));
  }
  if (type == "AdaDelta")
    return make("adadelta", rate.Float("rho", p.momentum()).Float("epsilon", p.delta()));
  if (type == "Adam") {
    rate.Float("beta1", p.momentum()).Float("beta2", p.momentum2());
    return make("adam", rate.Float("epsilon", p.delta()).Bool("use_epsilon_hat", true));
  }
  s.Fail(
      "type",
      fmt::format("{}: no such solver{}", Quote(type),
                  DidYouMean(type, {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"})));
}

// `inv { ... }`; "" for a fixed rate.
std::string ScheduleText(const SolverText& s) {
  const SolverParameter& p = s.def;
  const std::string& policy = p.lr_policy();
  Entry entry("");
  const auto make = [&](const char* kind) {
    return fmt::format("{} {{ {} }}", kind, entry.Body());
  };
  const auto stepsize = [&] {
    if (p.stepsize() < 1) s.Fail("stepsize", fmt::format("must be positive, got {}", p.stepsize()));
    return p.stepsize();
  };
  if (policy == "fixed") return "";
  if (policy != "poly") RequireNotNegative(s, "gamma", static_cast<double>(p.gamma()));
  if (policy == "step") {
    entry.Float("gamma", p.gamma()).Int("step_size", stepsize());
    return make("step");
  }
  if (policy == "exp") {
    entry.Float("gamma", p.gamma());
    return make("exponential");
  }
  if (policy == "inv") {
    entry.Float("gamma", p.gamma()).Float("power", p.power());
    return make("inv");
  }
  if (policy == "multistep") {
    Dims steps;
    for (int i = 0; i < p.stepvalue_size(); ++i) {
      if (p.stepvalue(i) < 0 || (!steps.empty() && p.stepvalue(i) <= steps.back()))
        s.Fail("stepvalue", "must ascend from 0 on");
      steps.push_back(p.stepvalue(i));
    }
    entry.Float("gamma", p.gamma()).Field("milestone", ListText(steps));
    return make("multistep");
  }
  if (policy == "poly") {
    RequireNotNegative(s, "power", static_cast<double>(p.power()));
    entry.Int("steps", p.max_iter()).Float("end", 0).Float("power", p.power());
    return make("polynomial");
  }
  if (policy == "sigmoid") {
    entry.Float("gamma", p.gamma()).Int("middle", stepsize());
    return make("sigmoid");
  }
  if (policy.empty()) s.Fail("lr_policy", "is missing: fixed, step, exp, inv, multistep, ...");
  s.Fail("lr_policy", fmt::format("{}: no such policy{}", Quote(policy),
                                  DidYouMean(policy, {"fixed", "step", "exp", "inv", "multistep",
                                                      "poly", "sigmoid"})));
}

std::string RegularizerText(const SolverText& s) {
  const SolverParameter& p = s.def;
  RequireNotNegative(s, "weight_decay", static_cast<double>(p.weight_decay()));
  if (p.weight_decay() == 0) return "";
  const std::string& type = p.regularization_type();
  if (type != "L1" && type != "L2")
    s.Fail("regularization_type", fmt::format("must be L1 or L2, got {}", Quote(type)));
  return fmt::format("{} {{ coeff: {} }}", type == "L2" ? "l2_decay" : "l1_decay",
                     Number(p.weight_decay()));
}

bool IsWord(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

class JobWriter {
 public:
  JobWriter(std::string_view text, const std::string& path, const ImportOptions& options,
            const std::string& npz)
      : path_(path), options_(options), npz_(npz), s_(ParseSolver(text, path)) {}

  ImportedJob Write() {
    const SolverParameter& p = s_.def;
    ReadNets();
    if (p.max_iter() < 1)
      s_.Fail("max_iter", fmt::format("must be positive, got {}", p.max_iter()));
    if (job_.net.loss.empty()) ThrowInvalid(train_.source + ": the net has no loss to minimise");
    Comment();
    Line("name: " + Quoted(JobName()));
    WriteData();
    Line("loss: " + Quoted(job_.net.loss));
    WriteMetrics();
    WriteOptimizer();
    WriteNumbers();
    WriteDeploy();
    WriteWeights();
    job_.text += "model_text: \"\"\"\n" + ModelText() + "\"\"\"\n";
    return std::move(job_);
  }

 private:
  void Line(const std::string& line) { job_.text += line + "\n"; }
  void Note(const std::string& note) { job_.notes.push_back(note); }

  Net ReadNet(const char* field, const std::string& name, int index = -1) {
    const std::string file = FindFile(name, path_);
    if (file.empty()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}: {}: there is no file {}: not from the working directory, nor "
                              "above or beside the solver's text",
                              s_.Where(field, index), field, Quote(name, 300)));
    }
    if (file != name) Note(fmt::format("{}: {}", field, file));
    return ParseNet(ReadFile(file, kMaxText), file);
  }

  Net FromParam(const char* field, const proto::caffe::NetParameter& param, int index = -1) {
    return UpgradeNet(param, path_, s_.Where(field, index));
  }

  // The states of the nets, as in Caffe's solver.cpp (InitTrainNet and InitTestNets).
  void ReadNets() {
    const SolverParameter& p = s_.def;
    const int train_nets =
        p.has_net() + p.has_net_param() + p.has_train_net() + p.has_train_net_param();
    if (train_nets != 1 && !(train_nets == 2 && (p.has_train_net() || p.has_train_net_param()))) {
      ThrowInvalid(fmt::format(
          "{}: it must name one network for training: net, net_param, train_net or train_net_param",
          path_));
    }
    const bool generic = p.has_net() || p.has_net_param();
    if (generic)
      net_ = p.has_net_param() ? FromParam("net_param", p.net_param()) : ReadNet("net", p.net());
    train_ = p.has_train_net_param() ? FromParam("train_net_param", p.train_net_param())
             : p.has_train_net()     ? ReadNet("train_net", p.train_net())
                                     : net_;
    ReadTestNets(generic);
    NetInState train{&train_, StateOf(train_, proto::caffe::TRAIN)};
    train.state.MergeFrom(p.train_state());
    states_.insert(states_.begin(), train);
    job_.net = ImportStates(train, {states_.begin() + 1, states_.end()}, options_);
    for (const std::string& note : job_.net.notes) Note(note);
  }

  // Separate test nets, and for further test_iter the net of both phases. Without any test, that
  // net gives the deployed outputs.
  void ReadTestNets(bool generic) {
    const SolverParameter& p = s_.def;
    for (int i = 0; i < p.test_net_param_size(); ++i)
      test_nets_.push_back(FromParam("test_net_param", p.test_net_param(i), i));
    for (int i = 0; i < p.test_net_size(); ++i)
      test_nets_.push_back(ReadNet("test_net", p.test_net(i), i));
    const int own = p.test_net_size() + p.test_net_param_size(), sets = p.test_iter_size();
    if (sets < own || (sets > own && !generic)) {
      s_.Fail("test_iter",
              fmt::format("is needed once for each test net: there are {} for {}", sets, own));
    }
    tests_ = static_cast<size_t>(sets);
    if (sets > 0 && p.test_interval() < 1)
      s_.Fail("test_interval", fmt::format("must be positive, got {}", p.test_interval()));
    if (p.test_state_size() > 0 && p.test_state_size() != sets) {
      s_.Fail("test_state", fmt::format("is needed for each of {} test nets or for none, got {}",
                                        sets, p.test_state_size()));
    }
    for (int i = 0; i < std::max(sets, 1); ++i) {
      const bool is_own = i < own;
      const Net& net = is_own ? test_nets_[static_cast<size_t>(i)] : generic ? net_ : train_;
      NetInState test{&net, StateOf(net, proto::caffe::TEST)};
      if (p.test_state_size() > 0) test.state.MergeFrom(p.test_state(i));
      if (sets > 1) test.stage = NameOfTest(i);
      states_.push_back(std::move(test));
    }
  }

  NetState StateOf(const Net& net, proto::caffe::Phase phase) const {
    NetState state = net.state;
    state.set_phase(phase);
    for (const std::string& stage : options_.stages) state.add_stage(stage);
    return state;
  }

  // Its stage in Caffe, if that is a name of its own.
  std::string NameOfTest(int i) const {
    const SolverParameter& p = s_.def;
    const std::string stage =
        i < p.test_state_size() && p.test_state(i).stage_size() > 0 ? p.test_state(i).stage(0) : "";
    bool is_own = IsWord(stage) && stage != "deploy" && stage != "test";
    for (int k = 0; k < p.test_state_size(); ++k)
      is_own &= k == i || p.test_state(k).stage_size() == 0 || p.test_state(k).stage(0) != stage;
    return is_own ? stage : fmt::format("test_{}", i);
  }

  std::string JobName() const {
    const std::string prefix = fs::path(s_.def.snapshot_prefix()).filename().string();
    const auto names = [](const std::string& name) {
      return !name.empty() && name != "." && name != "..";
    };
    if (names(prefix)) return prefix;
    const std::string stem = fs::path(path_).stem().string();
    return names(stem) ? stem : "job";
  }

  void Comment() {
    Line(fmt::format("# From {}.", PrintableLine(fs::path(path_).filename().string())));
  }

  JobData DataOf(const NetInState& state, bool train) {
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
          "{}: a job reads one data source for {}, the net has {} data layers; a job text of your "
          "own can read an .npz with a column for each",
          state.net->source, train ? "training" : "tests", sources.size()));
    }
    if (sources.front()->def.top_size() == 0) sources.front()->Fail("it has no top");
    JobData data = FindData(*sources.front(), train, {path_, options_.data_dir, options_.data});
    const bool told =
        std::find(job_.notes.begin(), job_.notes.end(), data.note) != job_.notes.end();
    if (!data.note.empty() && !told) Note(data.note);
    if (!data.missing.empty()) job_.missing.push_back(data.missing);
    for (const auto& [column, var] : data.bind) {
      if (column == var || !bound_.insert({column, var}).second) continue;
      binds_ += fmt::format("bind {{ column: {} var: {} }}\n", Quoted(column), Quoted(var));
    }
    return data;
  }

  // Caffe continues from the first row; a job's batch ends with the data, and its tests start from
  // the first row.
  void NoteEnd(const JobData& data, const char* what, int64_t batches) {
    if (data.rows == 0 || data.batch_size < 1) return;
    const int64_t rest = data.rows % data.batch_size, read = batches * data.batch_size;
    const std::string of =
        fmt::format("{}: {} rows in batches of {}", what, data.rows, data.batch_size);
    if (batches == 0 && rest != 0) {
      Note(fmt::format("{}: the last batch of an epoch has {}; Caffe fills it with the first rows",
                       of, rest));
    }
    if (read > data.rows)
      Note(fmt::format("{}: a test ends with them; Caffe's test_iter reads on to {}", of, read));
    if (batches > 0 && read < data.rows) {
      Note(fmt::format(
          "{}: every test has the first {}; Caffe's goes on where the last one stopped", of, read));
    }
  }

  // A single test becomes the job's `test`, several become test sets with stages.
  void WriteData() {
    const SolverParameter& p = s_.def;
    const JobData train = DataOf(states_[0], true);
    if (train.batch_size < 1) ThrowInvalid(train_.source + ": the training data has no batch_size");
    NoteEnd(train, "training data", 0);
    Line("train { " + train.text + " }");
    int64_t test_batch_size = 0;
    for (size_t i = 0; i < tests_; ++i) {
      const NetInState& state = states_[i + 1];
      const JobData test = DataOf(state, false);
      const int batches = p.test_iter(static_cast<int>(i));
      if (batches < 1)
        s_.Fail("test_iter", fmt::format("must be positive, got {}", batches), static_cast<int>(i));
      NoteEnd(test, "test data", batches);
      if (state.stage.empty()) {
        Line("test { " + test.text + " }");
        test_batch_size = test.batch_size;
        continue;
      }
      Line(fmt::format(
          "test_set {{\n  name: {}\n  data {{ {} }}\n{}  test_iter: {}\n  stage: {}\n}}",
          Quoted(state.stage), test.text,
          test.batch_size > 0 ? fmt::format("  batch_size: {}\n", test.batch_size) : "", batches,
          Quoted(state.stage)));
    }
    job_.text += binds_;
    if (!options_.data_dir.empty()) {
      std::error_code error;
      const fs::path directory = fs::absolute(options_.data_dir, error);
      Line("data_dir: " + Quoted(directory.lexically_normal().string()));
    }
    Line(fmt::format("batch_size: {}", train.batch_size));
    if (test_batch_size > 0) Line(fmt::format("test_batch_size: {}", test_batch_size));
    // Caffe reads a database in order, repeatedly.
    if (!train.shuffle) Line("shuffle: false");
  }

  std::vector<const WrittenNet*> AllNets() const {
    std::vector<const WrittenNet*> nets = {&job_.net.train, &job_.net.test};
    for (const WrittenNet& net : job_.net.further_tests) nets.push_back(&net);
    return nets;
  }

  void WriteMetrics() {
    std::vector<std::string> vars = job_.net.train.metrics;
    for (const WrittenNet* net : AllNets()) {
      vars.insert(vars.end(), net->metrics.begin(), net->metrics.end());
      vars.insert(vars.end(), net->numbers.begin(), net->numbers.end());
      for (const LossTerm& loss : net->losses)
        if (loss.var != job_.net.loss) vars.push_back(loss.var);
    }
    std::set<std::string> seen;
    const bool taken = std::find(vars.begin(), vars.end(), "loss") != vars.end();
    // A part of the objective is already called "loss".
    if (taken) Line("loss_name: " + Quoted(job_.net.loss));
    for (const std::string& var : vars) {
      if (!seen.insert(var).second) continue;
      Line(fmt::format("metric {{ var: {0} name: {0} }}", Quoted(var)));
    }
  }

  void WriteOptimizer() {
    const SolverParameter& p = s_.def;
    Line("optimizer {");
    Line("  " + OptimizerText(s_));
    const std::string schedule = ScheduleText(s_), regularizer = RegularizerText(s_);
    if (!schedule.empty()) Line("  schedule { " + schedule + " }");
    if (!regularizer.empty()) Line("  regularizer { " + regularizer + " }");
    if (p.clip_gradients() == 0) s_.Fail("clip_gradients", "of 0 makes every gradient 0");
    if (p.clip_gradients() > 0) {
      CheckForcedGradients();
      Line(fmt::format("  gradient_clip {{ by_global_norm {{ clip_norm: {} }} }}",
                       Number(p.clip_gradients())));
    }
    Line("}");
    if (p.iter_size() < 1)
      s_.Fail("iter_size", fmt::format("must be positive, got {}", p.iter_size()));
    if (p.iter_size() > 1) {
      Line(fmt::format("iter_size: {}", p.iter_size()));
      if (p.clip_gradients() > 0) Line("clip_before_average: true");
    }
  }

  // With force_backward, Caffe also computes gradients of fixed parameters and includes them in
  // its norm.
  void CheckForcedGradients() const {
    if (!train_.force_backward) return;
    for (const Layer& layer : states_[0].Layers()) {
      for (const auto& param : layer.def.param()) {
        if (param.lr_mult() != 0 || layer.def.type() == "BatchNorm") continue;
        layer.Fail({"param"},
                   "lr_mult 0 with force_backward and clip_gradients: a gradient that Caffe counts "
                   "in the norm and that is not computed here; leave force_backward out");
      }
    }
  }

  void WriteNumbers() {
    const SolverParameter& p = s_.def;
    Line(fmt::format("max_iter: {}", p.max_iter()));
    if (tests_ > 0) {
      if (tests_ == 1) Line(fmt::format("test_iter: {}", p.test_iter(0)));
      Line(fmt::format("test_interval: {}", p.test_interval()));
      if (p.test_initialization()) Line("initial_test: true");
    }
    Line(fmt::format("display: {}", p.display() > 0 ? p.display() : p.max_iter()));
    if (p.has_average_loss()) {
      if (p.average_loss() < 1) s_.Fail("average_loss", "must be positive");
      Line(fmt::format("average_loss: {}", p.average_loss()));
    }
    if (p.snapshot() < 0) s_.Fail("snapshot", "must not be negative");
    if (p.snapshot() > 0) Line(fmt::format("snapshot_interval: {}", p.snapshot()));
    Line("keep_snapshots: 0");
    if (!p.snapshot_after_train()) Line("snapshot_after_train: false");
    if (p.random_seed() >= 0) Line(fmt::format("random_seed: {}", p.random_seed()));
    if (p.debug_info() || train_.debug_info) Line("debug_info: true");
    if (p.has_solver_mode() && p.solver_mode() == SolverParameter::GPU)
      Note(s_.Where("solver_mode") + ": solver_mode: GPU: it trains on the CPU");
    if (p.snapshot_format() == SolverParameter::HDF5 && p.has_snapshot_format()) {
      Note(s_.Where("snapshot_format") +
           ": snapshots are in Coracle's format here; HDF5 is neither written nor read");
    }
    if (p.snapshot_diff())
      Note(s_.Where("snapshot_diff") + ": gradients are not in snapshots here");
  }

  // The outputs of the trained net: the probabilities of the last loss's classes, else the results
  // of all losses.
  void WriteDeploy() {
    WrittenNet test = job_.net.test;
    const auto softmax = std::find_if(
        test.results.rbegin(), test.results.rend(),
        [](const LossResult& result) { return result.kind == LossResult::Kind::kSoftmax; });
    if (softmax != test.results.rend()) test.results = {LossResult(*softmax)};
    test.outputs.clear();
    const NetInUse use = ResultsInUse(test, job_.net.text);
    std::vector<std::string> stages = {"deploy"};
    if (tests_ > 1) stages.push_back(states_[1].stage);
    for (std::string entry : use.entries) {
      entry.resize(entry.size() - 2);
      deploy_ += entry + " include_if { phase: TEST stage: \"deploy\" } }\n";
    }
    const std::vector<std::string> inputs = DeployedInputs(test, use.outputs, stages);
    if (inputs.empty() || use.outputs.empty()) return deploy_.clear();
    Entry deploy("deploy");
    for (const std::string& input : inputs) deploy.Text("input", input);
    for (const std::string& output : use.outputs) deploy.Text("output", output);
    for (const std::string& stage : stages) deploy.Text("stage", stage);
    Line("deploy { " + deploy.Body() + " }");
  }

  std::vector<std::string> DeployedInputs(const WrittenNet& test,
                                          const std::vector<std::string>& outputs,
                                          const std::vector<std::string>& stages) const {
    std::vector<std::string> inputs = test.inputs;
    std::erase_if(inputs, [&](const std::string& input) {
      return std::find(test.labels.begin(), test.labels.end(), input) != test.labels.end();
    });
    if (inputs.size() < 2) return inputs;
    ModelState state;
    state.train = false;
    state.stages = stages;
    const BuiltModel model = ParseModelText(ModelText(), path_, ".", DefaultOps(), state);
    return NeededInputs(model.main, std::move(inputs), outputs);
  }

  // `weights` holds file names separated by commas.
  void WriteWeights() {
    std::vector<std::string>& files = job_.weights;
    files = options_.weights;
    const int named = files.empty() ? s_.def.weights_size() : 0;
    for (int i = 0; i < named; ++i) {
      for (const std::string& part : Split(s_.def.weights(i), ',')) {
        const std::string name(Trim(part));
        const std::string file = FindFile(name, path_);
        if (file.empty()) {
          throw Error(
              ErrorCode::kNotFound,
              fmt::format("{}: weights: there is no file {}; `convert` takes another as its "
                          "second argument",
                          s_.Where("weights", i), Quote(name, 300)));
        }
        files.push_back(file);
      }
    }
    if (!job_.weights.empty() && !npz_.empty()) Line("weights { file: " + Quoted(npz_) + " }");
  }

  std::string ModelText() const { return job_.net.text + deploy_; }

  std::string path_;
  ImportOptions options_;
  std::string npz_;
  SolverText s_;
  Net net_, train_;
  std::deque<Net> test_nets_;       // states point to them
  std::vector<NetInState> states_;  // training, then the tests
  size_t tests_ = 0;                // number of tests with data
  std::string binds_;
  std::set<std::pair<std::string, std::string>> bound_;
  std::string deploy_;
  ImportedJob job_;
};

}  // namespace

ImportedJob ImportSolverText(std::string_view text, const std::string& path,
                             const ImportOptions& options, const std::string& npz) {
  return JobWriter(text, path, options, npz).Write();
}

ImportedJob ImportSolver(const std::string& path, const ImportOptions& options,
                         const std::string& npz) {
  return ImportSolverText(ReadFile(path, kMaxText), path, options, npz);
}

}  // namespace coracle::caffe
