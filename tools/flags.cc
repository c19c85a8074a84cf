#include "flags.h"

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/passes/pass.h>
#include <fmt/format.h>

#include <unordered_map>

#include "command.h"

DEFINE_string(op_library, "", "shared objects with your own ops: `FILE`,...");
DEFINE_string(
    threads, "0",
    "number `N` of threads; 0: OMP_NUM_THREADS, or as many as the cores and the CPU quota "
    "allow; bench takes several, as in 1,2,4");
DEFINE_string(out, "", "`PATH` of the result: a file, for train a directory");
DEFINE_string(kernels, "auto", "`KIND` of kernels: auto, or reference for plain loops only");
DEFINE_bool(check_nan_inf, false, "stop at the first op that computes a nan or inf");
DEFINE_bool(profile, false, "print the time of each op");
DEFINE_bool(shape_warnings, true,
            "warn if a feed or a parameter has another shape than the program declares");
DEFINE_bool(tune, false, "time an op's kernels and choose the fastest, which slows down the start");
DEFINE_string(disabled_passes, "", "`NAMES` of compiler passes to turn off, or all");
DEFINE_string(memory_limit, "",
              "memory limit in `BYTES`, as in 512M or 2G; none: 80% of the machine's memory");
DEFINE_double(time_limit, 600,
              "time limit in `SECONDS` for one run of a program (one training step), or for the "
              "whole command if it runs no program; 0: no limit");
DEFINE_string(allow_files, "",
              "`DIR` in which the program's own ops (save, load) may read and write files; none: "
              "programs that name files are refused");
DEFINE_string(
    compat, "",
    "`READER` of the result: paddle removes everything that only Coracle understands, and "
    "lists it (opt: runs only passes whose result Paddle understands)");
DEFINE_double(
    rtol, 1e-5,
    "relative tolerance: `NUMBER` times the magnitude of B's element; diff: 0 by default");
DEFINE_double(atol, 1e-6,
              "absolute tolerance: `NUMBER` added to the relative one; diff: 0 by default");
DEFINE_string(shape, "", "shapes of inputs that have unknown dims: `VAR:8x3x32x32,...`");
DEFINE_uint64(seed, 0, "seed of random ops, unless the program sets one");

DEFINE_string(ranks, "",
              "train: trains with `N` ranks, which are threads of this process and share each "
              "batch; time: forecasts a step on these numbers of machines, as in 8,64,1024");
DEFINE_double(bucket_mb, 25,
              "bucket size: gradients are exchanged in groups of up to `MB` megabytes");

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

}  // namespace

bool IsGiven(const char* flag) { return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default; }

uint64_t MemoryLimitFromFlags() {
  const uint64_t bytes = ParseBytes(FLAGS_memory_limit);
  return bytes > 0 ? bytes : DefaultMemoryLimit();
}

double TimeLimitFromFlags() {
  if (!(FLAGS_time_limit >= 0)) throw UsageError("--time_limit must not be negative");
  return FLAGS_time_limit;
}

std::vector<std::string> WithCompileFlags(std::vector<std::string> flags) {
  for (const char* name : {"kernels", "check_nan_inf", "profile", "tune", "disabled_passes",
                           "shape_warnings", "allow_files", "seed"})
    flags.emplace_back(name);
  return WithLimitFlags(std::move(flags));
}

std::vector<std::string> WithLimitFlags(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"memory_limit", "time_limit"});
  return flags;
}

CompileOptions CompileOptionsFromFlags() {
  CompileOptions options;
  if (FLAGS_kernels != "auto" && FLAGS_kernels != "reference")
    throw UsageError("--kernels is auto or reference, got " + Quote(FLAGS_kernels));
  options.kernels = FLAGS_kernels == "auto" ? KernelMode::kAuto : KernelMode::kReference;
  options.check_nan_inf = FLAGS_check_nan_inf;
  options.profile = FLAGS_profile;
  options.tune = FLAGS_tune;
  options.shape_warnings = FLAGS_shape_warnings;
  options.disabled_passes = ListFlag(FLAGS_disabled_passes);
  if (FLAGS_disabled_passes == "all") {
    options.disabled_passes.clear();
    options.optimize = false;
  }
  PassesWithout(options.disabled_passes);  // throws for an unknown name
  options.memory_limit = MemoryLimitFromFlags();
  options.time_limit = TimeLimitFromFlags();
  options.allow_files = FLAGS_allow_files;
  options.seed = FLAGS_seed;
  return options;
}

std::vector<std::pair<std::string, Shape>> ShapesFromFlag() {
  return ParseShapes("--shape takes", ListFlag(FLAGS_shape), 0);
}

std::vector<std::pair<std::string, Shape>> ParseShapes(const std::string& what,
                                                       const std::vector<std::string>& texts,
                                                       int64_t least) {
  std::vector<std::pair<std::string, Shape>> shapes;
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

std::vector<int> RanksFromFlag() {
  std::vector<int> ranks;
  for (const std::string& text : ListFlag(FLAGS_ranks)) {
    int64_t value = 0;
    if (!ParseInt64(text, &value) || value < 1 || value > 1'000'000)
      throw UsageError("--ranks takes numbers in [1, 1000000], got " + Quote(text));
    ranks.push_back(static_cast<int>(value));
  }
  return ranks;
}

std::vector<std::string> ListFlag(const std::string& value) {
  std::vector<std::string> parts;
  for (std::string& part : Split(value, ',')) {
    if (!part.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace coracle::tools
