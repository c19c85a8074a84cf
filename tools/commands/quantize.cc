#include <coracle/framework/base/temporaries.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/calibration_data.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/model_files.h>
#include <coracle/tools/preprocess_files.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/quantize_text.h>
#include <coracle/train/run/saved_model.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <set>

namespace coracle::tools {
namespace {

struct QuantizeFlags {
  ModelFlags model = {};
  std::string job = {};
  std::vector<std::string> feed = {};
  std::string data_dir = {};
  std::string test_set = {};
  int64_t samples = 256;
  QuantizeOptions options = {};
  std::optional<double> max_drop = {};
  std::string metric = {};
  std::string compat = {};
  int32_t opset = 0;
  CompileFlags compile = {};
};

Fields<QuantizeOptions> MethodFields() {
  return Fields<QuantizeOptions>("")
      .Add("method", &QuantizeOptions::method,
           "how a range is chosen from the values of the samples: all of them, all but the most "
           "extreme ones, by the entropy, or by the mean squared error",
           OneOf{"Method",
                 {{"minmax", RangeMethod::kMinMax},
                  {"percentile", RangeMethod::kPercentile},
                  {"entropy", RangeMethod::kEntropy},
                  {"mse", RangeMethod::kMse}}})
      .Add("percentile", &QuantizeOptions::percentile,
           "for --method=percentile: the share of the values below the upper end of the range")
      .Add("weights", &QuantizeOptions::weight_bits, "`BITS` of weights: 8 or 4")
      .Add("block_size", &QuantizeOptions::block_size,
           "`NUMBER` of weights of 4 bits that share a scale", LimitedRange(16, 4096))
      .Add("scheme", &QuantizeOptions::scheme,
           "static: activations have the ranges of the samples; dynamic: those of each run; "
           "weight_only: activations stay floats",
           OneOf{"Scheme",
                 {{"static", QuantScheme::kStatic},
                  {"dynamic", QuantScheme::kDynamic},
                  {"weight_only", QuantScheme::kWeightOnly}}})
      .Add("equalize", &QuantizeOptions::equalization,
           "moves factors from activations to weights: auto tries all ways and keeps the one with "
           "the smallest error",
           OneOf{"Equalize",
                 {{"auto", Equalization::kAuto},
                  {"none", Equalization::kNone},
                  {"cross_layer", Equalization::kCrossLayer},
                  {"smooth", Equalization::kSmooth}}})
      .Add("correct_bias", &QuantizeOptions::correct_bias,
           "lets biases make up for the mean error of rounded weights")
      .Add("keep_ends", &QuantizeOptions::keep_ends,
           "the first and the last layer stay in floating point")
      .Add("attention", &QuantizeOptions::products_of_activations,
           "also quantises products of two activations, as in attention")
      .Add("bfloat16", &QuantizeOptions::bfloat16,
           "products that stay in floating point compute in bfloat16")
      .Add("exclude", &QuantizeOptions::exclude,
           "`REGEX` (RE2): layers stay in floating point if it matches a part of the name of their "
           "output or weight");
}

Fields<QuantizeFlags> QuantizeFields() {
  return Fields<QuantizeFlags>("")
      .Inline(&QuantizeFlags::model, ModelFields())
      .Add("job", &QuantizeFlags::job,
           "`JOB` whose training data gives the samples, and whose test set measures the result")
      .Add(
          "feed", &QuantizeFlags::feed,
          "`FILES` of samples: npz, csv or json with arrays named like the inputs, or npy if there "
          "is only one input")
      .Add("data_dir", &QuantizeFlags::data_dir,
           "`DIR` that contains the data files of the job with relative names")
      .Add("test_set", &QuantizeFlags::test_set, "`NAME` of the test set that measures the result")
      .Add("samples", &QuantizeFlags::samples, "`NUMBER` of samples", LimitedRange(1, INT32_MAX))
      .Inline(&QuantizeFlags::options, MethodFields())
      .Add("max_drop", &QuantizeFlags::max_drop,
           "by how much the metric of the test set may become worse; the fewest layers that bring "
           "it below stay in floating point",
           ZeroOrMore())
      .Add("metric", &QuantizeFlags::metric,
           "`NAME` of the metric of --max_drop; none: the first one of the job, or the loss")
      .Add("compat", &QuantizeFlags::compat,
           "`paddle`: a .pdmodel has Paddle's quantize_linear and dequantize_linear")
      .Add("opset", &QuantizeFlags::opset,
           fmt::format("`NUMBER` of the opset of an ONNX model; 0: the lowest one from {} on that "
                       "has what the model needs",
                       kDefaultOnnxOpset))
      .Inline(&QuantizeFlags::compile, CompileFields(false));
}

// A directory for models that are only evaluated. A signal that ends the command removes it.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    // Like mkdtemp, but the path is known before it exists, for the note. mkdir fails for a path
    // that exists.
    std::random_device random;
    for (int attempt = 0; attempt < 100; ++attempt) {
      path_ = (std::filesystem::temp_directory_path() /
               fmt::format("coracle_quantize.{:08x}{:08x}", random(), random()))
                  .string();
      if (note_.Create(AT_FDCWD, path_, [&] { return ::mkdir(path_.c_str(), 0700); }) >= 0) return;
      if (errno != EEXIST) break;
    }
    throw Error(ErrorCode::kIo, fmt::format("cannot make the directory {}: {}", Quote(path_, 300),
                                            std::strerror(errno)));
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  NotedTemporary note_;
};

// Measures models on the test set of a job.
class JobMetric {
 public:
  JobMetric(const JobConfig& job, const QuantizeFlags& flags) : job_(job), metric_(flags.metric) {
    options_.test_set = flags.test_set;
    options_.compile = CompileOptionsOf(flags.compile);
  }

  std::vector<NamedValue> Measure(const ProgramDesc& program, const Scope& parameters) const {
    const std::string file = directory_.File("model.pdmodel");
    if (HasOpOfKind(program.Root(), OpKind::kFetch, DefaultOps())) {
      SaveCombined(parameters, PersistableNames(program), directory_.File("model.pdiparams"));
      WriteProgram(program, file);
    } else {
      SaveInferenceModel(directory_.File("model"), InputNames(program, DefaultOps()),
                         OutputNames(program, DefaultOps()), program, parameters);
    }
    return EvaluateSavedModel(file, job_, options_);
  }

  // The name of the metric that counts: --metric, or the first one that is not the loss.
  std::string NameOf(const std::vector<NamedValue>& values) const {
    std::vector<std::string> names;
    for (const NamedValue& value : values) names.push_back(value.name);
    if (metric_.empty()) return names[names.size() > 1 && names[0] == job_.loss_name ? 1 : 0];
    if (std::find(names.begin(), names.end(), metric_) != names.end()) return metric_;
    throw Error(ErrorCode::kNotFound,
                fmt::format("--metric: the test set has no {}; it has {}{}", Quote(metric_),
                            Join(names, ", "), DidYouMean(metric_, names)));
  }

  // By how much the metric is worse than before; negative if it is better.
  double Drop(const std::vector<NamedValue>& before, const std::vector<NamedValue>& after) const {
    const std::string name = NameOf(before);
    const auto value = [&](const std::vector<NamedValue>& values) {
      for (const NamedValue& each : values)
        if (each.name == name) return each.value;
      return std::nan("");
    };
    const bool more_is_better = GoalOf(job_, {.metric = name}) == WatchGoal::kMaximize;
    return (more_is_better ? 1 : -1) * (value(before) - value(after));
  }

 private:
  const JobConfig& job_;
  std::string metric_;
  EvaluateOptions options_;
  ScratchDirectory directory_;
};

// Refuses flags that would change nothing.
void RefuseIdleFlags(const QuantizeFlags& flags) {
  const QuantizeOptions& options = flags.options;
  const QuantizeFlags none;
  const bool has_samples = !flags.job.empty() || !flags.feed.empty();
  const bool is_static = options.scheme == QuantScheme::kStatic;
  const auto refuse = [](bool given, const char* flag, const char* needs) {
    if (given) throw UsageError(fmt::format("{} changes nothing without {}", flag, needs));
  };
  refuse(!flags.metric.empty() && !flags.max_drop, "--metric", "--max_drop");
  refuse(!has_samples && flags.samples != none.samples, "--samples", "--job or --feed");
  refuse(!has_samples && options.equalization != none.options.equalization &&
             options.equalization != Equalization::kNone,
         "--equalize", "--job or --feed, whose samples it measures");
  refuse(!is_static && options.method != none.options.method, "--method", "--scheme=static");
  refuse(
      options.method != RangeMethod::kPercentile && options.percentile != none.options.percentile,
      "--percentile", "--method=percentile");
  refuse(options.weight_bits != 4 && options.block_size != none.options.block_size, "--block_size",
         "--weights=4");
  refuse(options.products_of_activations && options.scheme == QuantScheme::kWeightOnly,
         "--attention", "quantised activations (--scheme=static or dynamic)");
}

void CheckFlags(const QuantizeFlags& flags) {
  if (flags.model.out.empty()) throw UsageError("--out=FILE is missing: where the model goes");
  RequireEnding("--out", flags.model.out, {".pdmodel", ".onnx"});
  RequireParametersName("--save_params", flags.model.save_params);
  const bool onnx = IsOnnx(flags.model.out);
  if (onnx && !flags.model.save_params.empty())
    throw UsageError("--save_params is for a .pdmodel: an ONNX model holds its parameters");
  if (!onnx && flags.opset != 0) throw UsageError("--opset needs an --out that ends in .onnx");
  if (flags.opset != 0 && (flags.opset < kLeastOnnxOpset || flags.opset > kLatestOnnxOpset)) {
    throw UsageError(fmt::format("--opset lies between {} and {}, got {}", kLeastOnnxOpset,
                                 kLatestOnnxOpset, flags.opset));
  }
  if (!flags.compat.empty() && flags.compat != "paddle")
    throw UsageError("--compat is paddle, got " + Quote(flags.compat));
  if (!flags.compat.empty() &&
      (onnx || flags.options.weight_bits != 8 || flags.options.scheme == QuantScheme::kDynamic)) {
    throw UsageError(
        "--compat=paddle needs an --out that ends in .pdmodel, weights of 8 bits, and static "
        "ranges "
        "or none");
  }
  if (!flags.job.empty() && !flags.feed.empty())
    throw UsageError("--job and --feed both give samples: give one of them");
  if (flags.job.empty() && flags.feed.empty() && flags.options.scheme == QuantScheme::kStatic) {
    throw UsageError(
        "samples are missing, from which the ranges of activations are taken: give "
        "--job=JOB or --feed=FILES, or --scheme=dynamic or weight_only");
  }
  for (const bool given : {flags.max_drop.has_value(), !flags.metric.empty(),
                           !flags.test_set.empty(), !flags.data_dir.empty()}) {
    if (given && flags.job.empty())
      throw UsageError("--max_drop, --metric, --test_set and --data_dir need --job=JOB");
  }
  RefuseIdleFlags(flags);
  if (flags.options.weight_bits != 8 && flags.options.weight_bits != 4)
    throw UsageError(fmt::format("--weights is 8 or 4, got {}", flags.options.weight_bits));
  if (!(flags.options.percentile > 0.5 && flags.options.percentile <= 1)) {
    throw UsageError(fmt::format("--percentile lies above 0.5 and is at most 1, got {:g}",
                                 flags.options.percentile));
  }
}

QuantizeOptions OptionsOf(const QuantizeFlags& flags) {
  QuantizeOptions options = flags.options;
  options.form = IsOnnx(flags.model.out) ? QuantForm::kOnnx : QuantForm::kPaddle;
  options.linear_ops = flags.compat == "paddle";
  options.compile = CompileOptionsOf(flags.compile);
  options.compile.shape_warnings = false;
  return options;
}

std::string Save(const QuantizeFlags& flags, QuantizedModel quantized,
                 const std::vector<std::string>& read) {
  if (!IsOnnx(flags.model.out)) {
    ModelFiles files;
    files.program = std::move(quantized.program);
    files.values = std::move(quantized.parameters);
    files.has_values = true;
    files.read = read;
    return WriteModel(files, flags.model);
  }
  RefuseOwnFiles(read, {flags.model.out});
  OnnxExportOptions options;
  options.opset = flags.opset;
  ExportOnnx(flags.model.out, quantized.program, quantized.parameters, options);
  return fmt::format("{}: {}\n", Shown(flags.model.out),
                     HumanBytes(std::filesystem::file_size(flags.model.out)));
}

// "accuracy 0.9912 -> 0.9903" for each value.
std::string DescribeChange(const std::vector<NamedValue>& before,
                           const std::vector<NamedValue>& after) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    parts.push_back(fmt::format("{} {:.6g} -> {:.6g}", PrintableLine(before[i].name),
                                before[i].value, after[i].value));
  }
  return "test set: " + Join(parts, ", ") + "\n";
}

// The layers that must stay in floating point for --max_drop.
std::set<std::string> InFloat(const ModelQuantizer& quantizer, const QuantizedModel& all,
                              const JobMetric& metric, const std::vector<NamedValue>& before,
                              double max_drop) {
  std::vector<std::string> order = WorstLayers(all, 0);
  for (const std::string& name : quantizer.products())  // those without a ratio
    if (std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
  const size_t count = order.size();
  return FewestInFloat(order, max_drop, [&](const std::set<std::string>& names) {
    if (names.size() == count) return 0.0;
    const QuantizedModel model = quantizer.Make(names, false);
    return metric.Drop(before, metric.Measure(model.program, model.parameters));
  });
}

int RunQuantize(const Args& args, const QuantizeFlags& flags) {
  RequireArgs(args, 1, 1, "MODEL");
  CheckFlags(flags);
  const CommandLimits limits(flags.compile.limits, CommandLimits::Time::kRuns);
  std::optional<JobConfig> job;
  if (!flags.job.empty()) {
    job = ReadJob(flags.job);
    if (!flags.data_dir.empty()) job->data_dir = flags.data_dir;
  }
  const ModelFiles model = ReadModel(args[0], flags.model.params);
  RefuseOwnFiles(model.read, {flags.model.out, WrittenParameters(flags.model)});
  RequireValues(model, args[0]);
  CalibrationFeeds samples;
  const auto rows = std::make_shared<int64_t>(0);
  if (job) samples = SamplesOfJob(*job, model.program, flags.samples);
  if (!flags.feed.empty()) samples = SamplesOfFiles(flags.feed, model.program, flags.samples);
  if (samples) samples = CountingRows(samples, rows);
  std::optional<JobMetric> metric;
  std::vector<NamedValue> before;
  if (job && !job->TestSets().empty()) {
    metric.emplace(*job, flags);
    before = metric->Measure(model.program, model.values);
    metric->NameOf(before);  // throws for an unknown one before the work begins
  } else if (flags.max_drop || !flags.test_set.empty()) {
    ThrowInvalid(fmt::format("{} needs a test set, and the job has none",
                             flags.max_drop ? "--max_drop" : "--test_set"));
  }
  const ModelQuantizer quantizer(model.program, model.values, samples, OptionsOf(flags));
  QuantizedModel quantized = quantizer.Make();
  if (flags.max_drop) {
    const std::set<std::string> in_float =
        InFloat(quantizer, quantized, *metric, before, *flags.max_drop);
    if (!in_float.empty()) quantized = quantizer.Make(in_float);
  }
  const int activation_bits = flags.options.scheme == QuantScheme::kWeightOnly ? 0 : 8;
  std::string report = QuantizeTable(quantized, flags.options.weight_bits, activation_bits);
  if (samples) {
    report += fmt::format("samples: {}, equalisation: {}, last layers: {}\n", *rows,
                          quantized.equalization, Decibels(quantized.output));
  }
  if (metric)
    report += DescribeChange(before, metric->Measure(quantized.program, quantized.parameters));
  if (flags.options.equalization != Equalization::kAuto &&
      flags.options.equalization != Equalization::kNone && quantized.equalization == "none") {
    report +=
        "--equalize changed nothing: no activation with its own producer and readers can pass on "
        "factors\n";
  }
  Print(report);
  Print(Save(flags, std::move(quantized), model.read));
  CopyPreprocess(args[0], flags.model.out);
  return 0;
}

}  // namespace

Command QuantizeCommand() {
  return MakeCommand(
      {"quantize", "makes a model compute with integers of 8 bits, calibrated on samples",
       "quantize MODEL --job=JOB|--feed=FILES -o OUT [--samples=N] [--method=minmax|percentile|"
       "entropy|mse] [--weights=8|4] [--scheme=static|dynamic|weight_only] [FLAGS]",
       "  coracle quantize model.pdmodel --job=lenet_job.pbtxt -o int8.pdmodel\n"
       "  coracle quantize model.onnx --feed=samples.npz --method=mse -o int8.onnx\n"
       "  coracle quantize model.pdmodel --job=lenet_job.pbtxt --max_drop=0.002 -o int8.onnx\n"
       "  coracle quantize model.onnx --scheme=weight_only --weights=4 -o int4.onnx\n"},
      QuantizeFields(), RunQuantize);
}

}  // namespace coracle::tools
