#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/passes/pass.h>
#include <coracle/tools/command.h>
#include <coracle/tools/flags.h>
#include <fmt/format.h>

#include <unordered_map>

DEFINE_string(op_library, "", "shared objects with your own ops: `FILE`,...");
DEFINE_string(
    threads, "0",
    "number `N` of threads; 0: OMP_NUM_THREADS, or as many as the cores and the CPU quota "
    "allow; bench takes several, as in 1,2,4");
DEFINE_string(shape, "",
              "shapes of inputs that have unknown dims: `VAR:8x3x32x32,...`; ONNX models are "
              "imported for them");

namespace coracle::tools {
namespace {

uint64_t ParseBytes(const std::string& text) {
  if (text.empty()) return 0;
  int shift = 0;
  std::string number = text;
  const size_t unit = std::string("KMGT").find(static_cast<char>(std::toupper(text.back())));
  if (unit != std::string::npos) {
    shift = 10 * (static_cast<int>(unit) + 1);
    number.pop_back();
  }
  int64_t value = 0;
  if (!ParseInt64(number, &value) || value <= 0 || value > (INT64_MAX >> shift))
    throw UsageError("--memory_limit takes bytes as in 1000000, 512M or 2G, got " + Quote(text));
  return static_cast<uint64_t>(value) << shift;
}

// Parses "x:8x3x32x32" from the end.
std::pair<std::string, Shape> ParseShape(const std::string& what, const std::string& text,
                                         int64_t least) {
  const UsageError wrong(what + " VAR:8x3x32x32, got " + Quote(text));
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0 || colon + 1 == text.size()) throw wrong;
  Shape shape;
  for (const std::string& part : Split(text.substr(colon + 1), 'x')) {
    int64_t dim = 0;
    if (!ParseInt64(part, &dim) || dim < least || shape.rank() == Shape::kMaxRank) throw wrong;
    shape.Append(dim);
  }
  return {text.substr(0, colon), shape};
}

Fields<LimitFlags> LimitFieldsFor(const std::string& time) {
  return Fields<LimitFlags>("")
      .Add("memory_limit", &LimitFlags::memory_limit,
           "memory limit in `BYTES`, as in 512M or 2G; none: 80% of the machine's memory")
      .Add("time_limit", &LimitFlags::time_limit, time, ZeroOrMore());
}

}  // namespace

Fields<LimitFlags> LimitFields() {
  return LimitFieldsFor("time limit of the command in `SECONDS`; 0: no limit");
}

Fields<LimitFlags> RunLimitFields() {
  return LimitFieldsFor(
      "time limit of one run of a program (one training step) in `SECONDS`; 0: no limit");
}

uint64_t MemoryLimitOf(const LimitFlags& flags) {
  const uint64_t bytes = ParseBytes(flags.memory_limit);
  return bytes > 0 ? bytes : DefaultMemoryLimit();
}

Fields<PassFlags> PassFields() {
  return Fields<PassFlags>("")
      .Add("kernels", &PassFlags::kernels,
           "`KIND` of kernels: auto, or reference for plain loops only",
           OneOf{"Kernels", {{"auto", KernelMode::kAuto}, {"reference", KernelMode::kReference}}})
      .Add("check_nan_inf", &PassFlags::check_nan_inf,
           "stop at the first op that computes a nan or inf")
      .Add("disabled_passes", &PassFlags::disabled_passes,
           "`NAMES` of compiler passes to turn off, or all")
      .Add("allow_files", &PassFlags::allow_files,
           "`DIR` in which the program's own ops (save, load) may read and write files; none: "
           "programs that name files are refused")
      .Add("precision", &PassFlags::precision,
           "`TYPE` in which layers with constant weights compute, where the machine is faster in "
           "it: float32 or bfloat16",
           OneOf{"Precision", {{"float32", DType::kFloat32}, {"bfloat16", DType::kBFloat16}}})
      .Add("float32_vars", &PassFlags::float32_vars,
           "`NAMES` of variables whose ops compute in float32 with --precision=bfloat16, too");
}

Fields<CompileFlags> CompileFields(bool with_profile) {
  Fields<CompileFlags> fields("");
  fields.Inline(&CompileFlags::passes, PassFields());
  if (with_profile) fields.Add("profile", &CompileFlags::profile, "print the time of each op");
  return fields
      .Add("tune", &CompileFlags::tune,
           "time an op's kernels and choose the fastest, which slows down the start")
      .Add("flush_subnormals", &CompileFlags::flush_subnormals,
           "treat numbers below 1.2e-38 (float64: 2.3e-308) as 0, because many processors are slow "
           "with them; --noflush_subnormals computes with them")
      .Add("shape_warnings", &CompileFlags::shape_warnings,
           "warn if a feed or a parameter has another shape than the program declares; "
           "--noshape_warnings does not")
      .Add("seed", &CompileFlags::seed, "seed of random ops, unless the program sets one")
      .Inline(&CompileFlags::limits, RunLimitFields());
}

CompileOptions CompileOptionsOf(const PassFlags& flags, const LimitFlags& limits) {
  CompileOptions options;
  options.kernels = flags.kernels;
  options.check_nan_inf = flags.check_nan_inf;
  options.disabled_passes = flags.disabled_passes;
  if (flags.disabled_passes == std::vector<std::string>{"all"}) {
    options.disabled_passes.clear();
    options.optimize = false;
  }
  PassesWithout(options.disabled_passes);  // throws for an unknown name
  options.memory_limit = MemoryLimitOf(limits);
  options.time_limit = limits.time_limit;
  options.allow_files = flags.allow_files;
  options.precision = flags.precision;
  options.float32_vars = flags.float32_vars;
  return options;
}

CompileOptions CompileOptionsOf(const CompileFlags& flags) {
  CompileOptions options = CompileOptionsOf(flags.passes, flags.limits);
  options.profile = flags.profile;
  options.tune = flags.tune;
  options.flush_subnormals = flags.flush_subnormals;
  options.shape_warnings = flags.shape_warnings;
  options.seed = flags.seed;
  return options;
}

FlagShapes ShapesOf(const std::vector<std::string>& texts) {
  return ParseShapes("--shape takes", texts, 0);
}

FlagShapes GivenShapes() {
  if (FLAGS_shape.empty()) return {};
  return ShapesOf(Split(FLAGS_shape, ','));
}

FlagShapes ParseShapes(const std::string& what, const std::vector<std::string>& texts,
                       int64_t least) {
  FlagShapes shapes;
  std::unordered_map<std::string, std::string> seen;
  for (const std::string& text : texts) {
    const auto& [name, shape] = shapes.emplace_back(ParseShape(what, text, least));
    const auto [first, fresh] = seen.emplace(name, text);
    if (!fresh)
      throw UsageError(fmt::format("{} has two shapes: {} and {}", Quote(name),
                                   Quote(first->second), Quote(text)));
  }
  return shapes;
}

std::vector<int> ThreadsFromFlag() {
  std::vector<int> threads;
  for (const std::string& text : Split(FLAGS_threads, ',')) {
    int64_t value = 0;
    if (!ParseInt64(text, &value) || value < 0 || value > INT32_MAX)
      throw UsageError("--threads takes a number that is not negative, got " + Quote(text));
    threads.push_back(static_cast<int>(value));
  }
  if (threads.empty()) throw UsageError("--threads needs a value");
  return threads;
}

}  // namespace coracle::tools
