// Times single ops, forward only or with gradients, on drawn data, and prints one JSON line.
//   op_step_bench --workload=NAME|NAME_train --threads=1 [--seconds=2] [--warm=0.5] [--check]
//   [--kernels=reference] [--profile]
// NAME is one of op_workloads.h. A step of NAME_train computes the result and the gradients of
// sum(result * weight) with respect to all inputs that have one; "weight" is drawn and given as the
// gradient of the result, so that only the op is timed. --check prints sums of the results.
#include <coracle/bench/measure.h>
#include <coracle/bench/op_workloads.h>
#include <coracle/coracle.h>

#include <cstring>
#include <functional>

namespace coracle {
namespace {

using Ints = std::vector<int32_t>;

// A program of the op with fed inputs.
class OpProgram {
 public:
  explicit OpProgram(const OpRun& run) : run_(run), net_(main_, startup_) {
    for (const OpInput& input : run.workload.inputs) {
      const DataOptions options = {.lod_level = HasLod(input) ? 1 : 0,
                                   .stop_gradient = input.draw != Draw::kWanted};
      fed_.push_back(net_.Data(input.name, Shape(input.dims), TypeOf(input), options));
    }
    Variable result = Result();
    fetched_ = {result.name()};
    if (run.name == "nms") return;
    if (run.name == "argsort" || run.name == "top_k") fetched_.emplace_back("indices");
    if (!run.train) return;
    std::vector<Variable> wanted;
    for (size_t i = 0; i < fed_.size(); ++i)
      if (run.workload.inputs[i].draw == Draw::kWanted) wanted.push_back(fed_[i]);
    GradientsOptions options;
    options.target_gradients = {"weight"};
    for (const std::string& name : Gradients({result}, wanted, options)) fetched_.push_back(name);
  }

  const ProgramDesc& main() const { return main_; }
  const std::vector<std::string>& fetched() const { return fetched_; }

  std::vector<std::string> FedNames() const {
    std::vector<std::string> names;
    for (const Variable& v : fed_) names.push_back(v.name());
    return names;
  }
  std::vector<Tensor> Feeds() const {
    Drawing drawing;
    std::vector<Tensor> feeds;
    for (const OpInput& input : run_.workload.inputs) {
      Tensor t(TypeOf(input), Shape(input.dims));
      if (input.draw == Draw::kWhole) {
        drawing.Fill(input, t.data<int64_t>(), t.numel());
      } else {
        drawing.Fill(input, t.data<float>(), t.numel());
      }
      if (HasLod(input)) {
        std::vector<uint64_t> offsets = {0};
        for (const int64_t n : run_.workload.lengths)
          offsets.push_back(offsets.back() + static_cast<uint64_t>(n));
        t.lod() = {offsets};
      }
      feeds.push_back(std::move(t));
    }
    return feeds;
  }

 private:
  bool HasLod(const OpInput& input) const {
    return !run_.workload.lengths.empty() && input.name == "x";
  }
  static DType TypeOf(const OpInput& input) {
    return input.draw == Draw::kWhole ? DType::kInt64 : DType::kFloat32;
  }
  Variable In(const std::string& name) { return net_.Var(name); }
  // Appends an op whose first output is its result. Inputs are named as in the workload.
  Variable Op(const std::string& type, SlotList inputs, SlotList outputs, AttrList attrs = {}) {
    net_.Append(type, std::move(inputs), outputs, std::move(attrs));
    return In(outputs[0].args[0]);
  }

  Variable Convolution() {
    const bool transposed = run_.name != "conv3d";
    const size_t axes = run_.name == "conv2d_transpose" ? 2 : 3;
    return Op(run_.name, {{"Input", {"x"}}, {"Filter", {"filter"}}}, {{"Output", {"out"}}},
              {{"strides", Ints(axes, transposed ? 2 : 1)}, {"paddings", Ints(axes, 1)}});
  }
  Variable Pool3d() {
    return Op("pool3d", {{"X", {"x"}}}, {{"Out", {"out"}}},
              {{"pooling_type", run_.name.substr(7)},
               {"ksize", Ints(3, 3)},
               {"strides", Ints(3, 2)},
               {"paddings", Ints(3, 1)}});
  }
  // Includes the projection, as Fluid's layers do.
  Variable Lstm() {
    net_.Append("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"gates"}}});
    SlotList outputs = {{"Hidden", {"out"}}, {"Cell", {"cell"}}};
    if (run_.train) {
      outputs.push_back({"BatchGate", {"batch_gate"}});
      outputs.push_back({"BatchCellPreAct", {"batch_cell"}});
    }
    return Op("lstm", {{"Input", {"gates"}}, {"Weight", {"u"}}, {"Bias", {"bias"}}}, outputs,
              {{"use_peepholes", false}});
  }
  Variable WarpCtc() {
    SlotList outputs = {{"Loss", {"out"}}};
    if (run_.train) outputs.push_back({"WarpCTCGrad", {"ctc_grad"}});
    return Op("warpctc",
              {{"Logits", {"x"}},
               {"Label", {"label"}},
               {"LogitsLength", {"frames"}},
               {"LabelLength", {"symbols"}}},
              outputs);
  }
  Variable Nms() {
    return Op("multiclass_nms", {{"BBoxes", {"boxes"}}, {"Scores", {"scores"}}}, {{"Out", {"out"}}},
              {{"background_label", -1},
               {"score_threshold", -1.0f},
               {"nms_top_k", -1},
               {"keep_top_k", -1},
               {"nms_threshold", 0.5f}});
  }
  // The compiler fuses these into one op.
  Variable Attention() {
    const Variable scores =
        net_.Matmul(In("x"), In("keys"), {.transpose_y = true, .alpha = 0.125f});
    return net_.Matmul(net_.Softmax(scores), In("values"), {.output = "out"});
  }
  Variable Result() {
    const std::string& name = run_.name;
    const SlotList x = {{"X", {"x"}}}, out = {{"Out", {"out"}}};
    if (name.find("conv") == 0) return Convolution();
    if (name.find("pool3d") == 0) return Pool3d();
    if (name.find("lstm") == 0) return Lstm();
    if (name == "warpctc") return WarpCtc();
    if (name == "nms") return Nms();
    if (name == "attention") return Attention();
    if (name == "bmm") return Op("bmm", {{"X", {"x"}}, {"Y", {"y"}}}, out);
    if (name == "group_norm") {
      return Op("group_norm", {{"X", {"x"}}, {"Scale", {"scale"}}, {"Bias", {"bias"}}},
                {{"Y", {"out"}}, {"Mean", {"mean"}}, {"Variance", {"variance"}}}, {{"groups", 32}});
    }
    if (name == "bilinear_interp")
      return Op(name, x, out,
                {{"out_h", 112}, {"out_w", 112}, {"align_corners", false}, {"align_mode", 0}});
    if (name == "grid_sampler")
      return Op(name, {{"X", {"x"}}, {"Grid", {"grid"}}}, {{"Output", {"out"}}});
    if (name == "scatter") {
      return Op(name, {{"X", {"x"}}, {"Ids", {"ids"}}, {"Updates", {"updates"}}}, out,
                {{"overwrite", false}});
    }
    if (name == "gather") return Op(name, {{"X", {"x"}}, {"Index", {"ids"}}}, out);
    if (name == "cumsum") return Op(name, x, out);
    AttrList attrs;
    if (name == "top_k") attrs.push_back({"k", 10});
    return Op(name, x, {{"Out", {"out"}}, {"Indices", {"indices"}}}, attrs);
  }

  const OpRun& run_;
  ProgramDesc main_, startup_;
  Builder net_;
  std::vector<Variable> fed_;
  std::vector<std::string> fetched_;
};

void PrintChecks(const std::vector<std::string>& names, const std::vector<Tensor>& values) {
  for (size_t i = 0; i < names.size(); ++i) {
    const Tensor& t = values[i];
    if (t.dtype() == DType::kInt64) {
      PrintSums(names[i], t.data<int64_t>(), t.numel());
    } else {
      PrintSums(names[i], t.data<float>(), t.numel());
    }
  }
}

int Main(const Arguments& arguments) {
  const StepBench bench(arguments, "conv3d", 0.5, 2);
  const OpRun run(bench.workload());
  const OpProgram program(run);
  Executor executor(bench.options());
  Scope scope;
  PreparedProgram step = executor.Prepare(program.main(), program.FedNames(), program.fetched());
  const std::vector<Tensor> feeds = program.Feeds();
  if (arguments.Text("check", "") == "true") {
    PrintChecks(program.fetched(), step.Run(scope, feeds));
    return 0;
  }
  const std::vector<double> times = bench.Time([&] { step.Run(scope, feeds); });
  char extra[40];
  std::snprintf(extra, sizeof extra, ",\"arena_mb\":%.2f",
                static_cast<double>(step.WorkspaceBytes()) / 1048576);
  bench.Print(times, extra);
  bench.PrintProfile(step);
  return 0;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return coracle::RunMain(argc, argv, coracle::Main); }
