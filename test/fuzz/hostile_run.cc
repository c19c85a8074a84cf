#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/test/fuzz/any_program.h>
#include <coracle/test/fuzz/hostile_run.h>
#include <coracle/test/fuzz/targets.h>
#include <coracle/test/sanitizers.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace coracle {
namespace {

constexpr uint64_t kMemoryLimit = uint64_t{16} << 20;
constexpr double kTimeLimit = 1, kHang = 10;  // seconds
constexpr int64_t kNumbers[] = {0,         -1,        1,          2,           7,
                                64,        1000,      65536,      1 << 20,     1000000007,
                                -1000,     100000000, 2147483647, -2147483648, int64_t{1} << 32,
                                1LL << 40, 1LL << 48, 1LL << 62,  INT64_MAX,   INT64_MIN};
constexpr double kReals[] = {0,
                             -1,
                             1e-40,
                             1e30,
                             -1e30,
                             1e300,
                             0.5,
                             std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()};

// --- attrs ---

struct Wild {
  Choices& choose;
  int64_t Number() const { return choose.Of(kNumbers); }
  void operator()(int32_t& v) const { v = static_cast<int32_t>(Number()); }
  void operator()(int64_t& v) const { v = Number(); }
  void operator()(float& v) const { v = static_cast<float>(choose.Of(kReals)); }
  void operator()(double& v) const { v = choose.Of(kReals); }
  void operator()(bool& v) const { v = !v; }
  template <class T>
  void operator()(std::vector<T>& v) const {
    if (v.empty() || choose.OneIn(8)) v.resize(v.size() + 1 + choose.Below(3));
    if (choose.OneIn(8)) v.pop_back();
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      for (T& element : v) {
        if (choose.OneIn(2)) (*this)(element);
      }
    }
  }
  template <class T>
  void operator()(T&) const {}
};

// One attr of the op's declaration, given or not.
void MakeAttrWild(OpDesc& op, Choices& choose) {
  const OpSpec* def = DefaultOps().Find(op.type());
  if (!def || def->attrs.empty()) return;
  const AttrDef& attr = choose.Of(def->attrs);
  const Attribute* given = op.FindAttr(attr.name);
  if (!given && !attr.default_value) return;
  if (!attr.one_of.empty() && choose.OneIn(2)) return op.SetAttr(attr.name, choose.Of(attr.one_of));
  Attribute value = given ? *given : *attr.default_value;
  std::visit(Wild{choose}, value);
  op.SetAttr(attr.name, value);
}

void SpoilAttr(ProgramDesc& program, Choices& choose) {
  BlockDesc& block =
      program.Block(static_cast<int>(choose.Below(static_cast<size_t>(program.NumBlocks()))));
  if (block.NumOps() > 0) MakeAttrWild(block.op(choose.Below(block.NumOps())), choose);
}

// --- values ---

void SpoilElements(Tensor& tensor, Choices& choose) {
  if (tensor.empty()) return;
  const bool floating = IsFloating(tensor.dtype());
  Tensor wild(floating ? DType::kFloat64 : DType::kInt64, {1});
  for (size_t n = 1 + choose.Below(3); n > 0; --n) {
    if (floating)
      wild.data<double>()[0] = choose.Of(kReals);
    else
      wild.data<int64_t>()[0] = choose.Of(kNumbers);
    const Tensor element = wild.Cast(tensor.dtype());
    const size_t at = choose.Below(static_cast<size_t>(std::min<int64_t>(tensor.numel(), 256)));
    std::copy_n(static_cast<const char*>(element.raw()), element.nbytes(),
                static_cast<char*>(tensor.raw()) + at * element.nbytes());
  }
}

Tensor OtherShape(const Tensor& tensor, Choices& choose) {
  Shape shape = tensor.shape();
  if (shape.rank() == 0 || choose.OneIn(4)) {
    if (shape.rank() < Shape::kMaxRank) shape.Append(1 + static_cast<int64_t>(choose.Below(3)));
  } else {
    shape[static_cast<int>(choose.Below(static_cast<size_t>(shape.rank())))] =
        static_cast<int64_t>(choose.Below(6));
  }
  return Tensor::Zeros(tensor.dtype(), shape);
}

void SpoilLod(Tensor& tensor, Choices& choose) {
  if (tensor.lod().empty()) {
    tensor.lod() = {{0, choose.Below(4), choose.Below(4)}};
    return;
  }
  std::vector<uint64_t>& level = tensor.lod()[choose.Below(tensor.lod().size())];
  if (level.empty() || choose.OneIn(4))
    level.push_back(static_cast<uint64_t>(choose.Of(kNumbers)));
  else
    level[choose.Below(level.size())] = static_cast<uint64_t>(choose.Of(kNumbers));
}

void SpoilValue(VarValue& value, Choices& choose) {
  if (auto* rows = std::get_if<SelectedRows>(&value)) {
    if (choose.OneIn(4)) rows->height = choose.Of(kNumbers);
    if (!rows->rows.empty() && choose.OneIn(2)) rows->rows[0] = choose.Of(kNumbers);
    if (choose.OneIn(4)) rows->rows.push_back(0);
    return;
  }
  auto& tensor = std::get<Tensor>(value);
  switch (choose.Below(6)) {
    case 0:
      tensor = OtherShape(tensor, choose);
      return;
    case 1:
      SpoilLod(tensor, choose);
      return;
    default:
      SpoilElements(tensor, choose);
  }
}

// --- the run ---

struct Feeds {
  Scope scope;
  std::vector<std::string> names;
  std::vector<Tensor> tensors;
};

void Place(const HostileCase& made, const ProgramDesc& program, Feeds* feeds) {
  for (const auto& [name, value] : made.values) {
    const VarDesc* var = program.Root().FindVar(name);
    if (!var) continue;
    const auto* tensor = std::get_if<Tensor>(&value);
    if (var->persistable() || !tensor) {
      feeds->scope.Var(name) = CloneValue(value);
    } else {
      feeds->names.push_back(name);
      feeds->tensors.push_back(*tensor);
    }
  }
}

bool IsSound(const ProgramDesc& program) {
  bool sound = true;
  for (const VerifyProblem& problem : Verify(program, DefaultOps())) {
    if (problem.rule == "internal") throw InternalError(problem.ToString());
    sound = sound && problem.severity != VerifyProblem::Severity::kError;
  }
  return sound;
}

void RunAll(const HostileCase& made, HostileCounts* counts) {
  const ProgramDesc program = ParseProgram(SerializeProgram(made.program), "input");
  if (!IsSound(program)) {
    ++counts->refused;
    return;
  }
  Feeds feeds;
  Place(made, program, &feeds);
  CompileOptions options;
  options.kernels = made.reference ? KernelMode::kReference : KernelMode::kAuto;
  options.memory_limit = kMemoryLimit;
  options.time_limit = kTimeLimit;
  std::vector<std::string> fetches;
  for (const std::string& name : made.fetches) {
    if (program.Root().FindVar(name)) fetches.push_back(name);
  }
  const bool frozen = feeds.names.size() % 2 == 1;
  PreparedProgram prepared =
      frozen ? Executor(options).PrepareOwning(program, feeds.scope, feeds.names, fetches)
             : Executor(options).Prepare(program, feeds.names, fetches);
  for (const Tensor& tensor : prepared.Run(feeds.scope, feeds.tensors))
    tensor.Cast(DType::kFloat64);
  ++counts->ran;
}

std::string WithoutNumbers(const std::string& message) {
  std::string text;
  bool quoted = false;
  for (char c : message) {
    if (c == '\'') quoted = !quoted;
    if (!quoted && (c < '0' || c > '9')) text += c;
  }
  return text.substr(0, 120);
}

std::optional<Finding> Judge(const Error& error) {
  const std::string& line = error.message();
  const std::string kind = WithoutNumbers(line);
  if (error.code() == ErrorCode::kInternal) return Finding{"internal: " + kind, error.what()};
  if (line.empty() || line.size() > 2000 || line.find('\n') != std::string::npos)
    return Finding{"no first line to read: " + kind, error.what()};
  const size_t memory = line.find("out of memory");
  if (memory != std::string::npos && line.compare(memory, 15, "out of memory: ") != 0)
    return Finding{"memory that nobody asked for: " + kind, error.what()};
  for (const char* text : {"std::", "basic_string", "vector::", "map::at", "stoi", "bad_"}) {
    if (line.find(text) != std::string::npos)
      return Finding{"a message of the standard library: " + kind, error.what()};
  }
  return std::nullopt;
}

}  // namespace

HostileCase MakeHostileCase(Choices& choose, const std::vector<std::string>& types) {
  RandomProgramOptions options;
  options.max_ops = choose.OneIn(2) ? 1 : 6;
  options.types = types;
  RandomProgram drawn = MakeRandomProgram(choose, options);
  HostileCase made;
  for (size_t n = choose.Below(5); n > 0; --n) {
    if (choose.OneIn(4))
      Spoil(drawn.program, choose);
    else
      SpoilAttr(drawn.program, choose);
  }
  const uint64_t seed = 1 + choose.Below(1 << 20);
  for (const ProgramInput& input : drawn.inputs) {
    VarValue value = DrawValue(input, seed);
    if (choose.OneIn(4)) SpoilValue(value, choose);
    made.values.emplace(input.name, std::move(value));
  }
  for (size_t k = 0; k < 3 && !drawn.computed.empty(); ++k)
    made.fetches.push_back(k == 0 ? drawn.computed.back() : choose.Of(drawn.computed));
  made.reference = choose.OneIn(3);
  made.program = std::move(drawn.program);
  return made;
}

void HostileCounts::Add(const HostileCounts& other) {
  programs += other.programs;
  refused += other.refused;
  stopped += other.stopped;
  ran += other.ran;
  slowest = std::max(slowest, other.slowest);
  for (const auto& [message, count] : other.errors) errors[message] += count;
}

std::optional<Finding> RunHostileCase(const HostileCase& made, HostileCounts* counts) {
  ++counts->programs;
  const auto begin = std::chrono::steady_clock::now();
  std::optional<Finding> finding;
  try {
    RunAll(made, counts);
  } catch (const Error& error) {
    ++counts->stopped;
    ++counts->errors[WithoutNumbers(error.message())];
    finding = Judge(error);
  } catch (const std::exception& error) {
    finding = Finding{fmt::format("exception: {}", error.what()), error.what()};
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  counts->slowest = std::max(counts->slowest, took.count());
  if (!finding && took.count() > kHang)
    finding = Finding{"hang", fmt::format("it took {:.0f} s", took.count())};
  return finding;
}

void LimitMemory() {
  if (UnderSanitizer()) return;  // their shadow is larger than that
  const rlimit limit = {rlim_t{2} << 30, rlim_t{2} << 30};
  ::setrlimit(RLIMIT_DATA, &limit);
}

void FuzzRun(std::string_view bytes) {
  SetLogSink([](MessageLevel, const std::string&) {});
  Choices choose(bytes);
  HostileCounts counts;
  const auto finding = RunHostileCase(MakeHostileCase(choose), &counts);
  if (finding) throw std::logic_error(finding->kind + "\n" + finding->text);
}

}  // namespace coracle
