#include <coracle/executor/activation.h>
#include <coracle/executor/compiled_program.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/memory_errors.h>
#include <coracle/framework/base/subnormals.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/string_arena.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace coracle {
namespace {

// Odd, so that the ranks' seeds differ; large, to avoid the seeds of other programs.
constexpr uint64_t kSeedOfRank = 0x9e3779b97f4a7c15;

template <class Impl>
Impl& Held(const std::unique_ptr<Impl>& impl) {
  if (!impl) ThrowInvalid("a PreparedProgram was used that has been moved from; prepare another");
  return *impl;
}

}  // namespace

struct PreparedProgram::Impl {
  std::shared_ptr<const CompiledProgram> compiled;
  ExecutionState state;
  StringArena strings;               // of a run; the frames of `root` point into it
  std::unique_ptr<Activation> root;  // its frames are charged to state.limits
  uint64_t step = 0;
  std::shared_ptr<ResourceLimits> outer;  // the limits around state.limits
  uint64_t traced_in = 0;                 // id of the last recording trace
  int64_t traced_runs = 0;                // runs recorded in that trace
  FrozenGuard::Watch frozen;

  explicit Impl(std::shared_ptr<const CompiledProgram> program) : compiled(std::move(program)) {
    state.profile = compiled->options().profile;
    state.check_nan_inf = compiled->options().check_nan_inf;
    state.seed = compiled->seed();
  }

  static PreparedProgram Compile(const ProgramDesc& program, const std::vector<std::string>& feeds,
                                 const std::vector<std::string>& fetches, const Executor& executor,
                                 const std::shared_ptr<ShapeWarningLog>& warning_log,
                                 const CompiledProgram::FrozenFrom& parameters) {
    return TranslateMemoryErrors(
        [&] {
          return PreparedProgram(std::make_unique<Impl>(std::make_shared<const CompiledProgram>(
              program, feeds, fetches, executor.options(), executor.ops(), parameters,
              PassObserver(), warning_log)));
        },
        [] { return "the compilation of a program"; });
  }

  // Decides whether a trace records the ops of the next run.
  void BeginTrace(TraceSpan& span) {
    Trace* trace = Trace::Current();
    state.trace = nullptr;
    if (!trace || !span) return;
    if (traced_in != trace->id()) traced_runs = 0;
    traced_in = trace->id();
    const bool with_ops = ++traced_runs <= trace->options().runs;
    trace->CountRun(with_ops);
    if (with_ops) state.trace = trace;
    span.Set("program", compiled->number());
    span.Set("step", static_cast<int64_t>(step));
    if (!with_ops) span.Set("ops", std::string("not recorded"));
  }

  void SetCommunicator(std::shared_ptr<Communicator> communicator) {
    state.comm = communicator ? std::make_unique<CommContext>(std::move(communicator)) : nullptr;
    state.seed = compiled->seed() +
                 (state.comm ? kSeedOfRank * static_cast<uint64_t>(state.comm->rank()) : 0);
  }

  void EndStrings() {
    if (!strings.used()) return;
    std::exception_ptr error;
    root->ForEachFrame([&](Frame& frame) {
      try {
        frame.OwnStrings();
      } catch (...) {
        error = std::current_exception();
      }
    });
    strings.Clear();
    if (error) std::rethrow_exception(error);
  }

  const std::vector<Tensor>& RunRoot(std::span<const Tensor> feeds) {
    const ScopedStrings scoped(strings);
    try {
      const std::vector<Tensor>& results = root->Run(feeds, step);
      EndStrings();
      return results;
    } catch (...) {
      if (state.comm) state.comm->Abandon();
      EndStrings();
      throw;
    }
  }

  const std::vector<Tensor>& Run(Scope& scope, std::span<const Tensor> feeds) {
    TraceSpan span("run", "run");
    BeginTrace(span);
    state.scope = &scope;
    if (!state.limits || outer != ResourceLimits::Current()) {
      root.reset();
      state.limits = std::make_shared<ResourceLimits>(compiled->limits());
      outer = ResourceLimits::Current();
    }
    const ScopedRun scoped(state.limits);
    const ScopedSubnormals subnormals(compiled->options().flush_subnormals &&
                                      compiled->options().kernels != KernelMode::kReference);
    if (!root) root = std::make_unique<Activation>(state, compiled->plans(), kRootProcedure);
    compiled->frozen().Check(scope, &frozen);
    compiled->CheckFeeds(feeds);
    const std::vector<Tensor>& fetched = RunRoot(feeds);
    ++step;
    if (state.trace) {
      const ResourceLimits& all = outer ? *outer : *state.limits;
      state.trace->AddCounter("tensors", static_cast<int64_t>(all.bytes_in_use()));
    }
    return fetched;
  }
};

PreparedProgram::PreparedProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreparedProgram::PreparedProgram(const PreparedProgram& other)
    : impl_(std::make_unique<Impl>(Held(other.impl_).compiled)) {
  impl_->step = other.impl_->step;
}
PreparedProgram& PreparedProgram::operator=(const PreparedProgram& other) {
  if (this != &other) *this = PreparedProgram(other);
  return *this;
}
PreparedProgram::PreparedProgram(PreparedProgram&&) noexcept = default;
PreparedProgram& PreparedProgram::operator=(PreparedProgram&&) noexcept = default;
PreparedProgram::~PreparedProgram() = default;

const std::vector<Tensor>& PreparedProgram::Run(Scope& scope, std::span<const Tensor> feeds) {
  return TranslateMemoryErrors(
      [&]() -> const std::vector<Tensor>& { return Held(impl_).Run(scope, feeds); },
      [] { return "a run of a program"; });
}

void PreparedProgram::SetCommunicator(std::shared_ptr<Communicator> communicator) {
  Held(impl_).SetCommunicator(std::move(communicator));
}
const CommContext* PreparedProgram::comm() const { return Held(impl_).state.comm.get(); }

const std::vector<std::string>& PreparedProgram::frozen_names() const {
  return Held(impl_).compiled->frozen().names();
}
const std::vector<std::string>& PreparedProgram::feed_names() const {
  return Held(impl_).compiled->feeds();
}
const std::vector<std::string>& PreparedProgram::fetch_names() const {
  return Held(impl_).compiled->fetches();
}
const ProgramDesc& PreparedProgram::program() const {
  return Held(impl_).compiled->ProgramWithoutOrigins();
}
uint64_t PreparedProgram::step() const { return Held(impl_).step; }
void PreparedProgram::SetStep(uint64_t step) { Held(impl_).step = step; }
const std::shared_ptr<const CompiledProgram>& PreparedProgram::compiled() const {
  return Held(impl_).compiled;
}

std::vector<OpTime> PreparedProgram::Profile() const {
  std::vector<OpTime> times;
  if (!Held(impl_).compiled->options().profile) return times;
  if (!Held(impl_).root) return times;
  Held(impl_).root->ForEachFrame([&](const Frame& frame) {
    const Plan& plan = frame.plan();
    for (StepId id : plan.steps.ids()) {
      const PlanStep& step = plan.steps[id];
      const Frame::StepTime& time = frame.times()[id];
      const auto* run = std::get_if<RunKernel>(&step.action);
      const std::string output = step.outputs.empty() ? "" : plan.values[step.outputs[0]].name;
      times.push_back(
          {std::string(step.Name()), output, time.runs, time.seconds, run ? run->how : ""});
    }
  });
  return times;
}

std::string PreparedProgram::ProfileTable() const {
  std::vector<OpTime> times = Profile();
  std::stable_sort(times.begin(), times.end(),
                   [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  double total = 0;
  for (const OpTime& t : times) total += t.seconds;
  std::string table = fmt::format("{:>10} {:>6} {:>8} {:>10}  {:<32} {}\n", "ms", "%", "runs",
                                  "us/run", "op", "output");
  for (const OpTime& t : times) {
    table += fmt::format("{:>10.3f} {:>6.2f} {:>8} {:>10.2f}  {:<32} {}{}\n", t.seconds * 1e3,
                         total > 0 ? 100 * t.seconds / total : 0.0, t.runs,
                         t.runs ? t.seconds * 1e6 / static_cast<double>(t.runs) : 0.0, t.op_type,
                         PrintableLine(impl_->compiled->origins().NameOf(t.output)),
                         t.kernel.empty() ? "" : " [" + t.kernel + "]");
  }
  return table + fmt::format("{:>10.3f} ms in all\n", total * 1e3);
}

uint64_t PreparedProgram::WorkspaceBytes() const {
  uint64_t bytes = 0;
  if (Held(impl_).root)
    Held(impl_).root->ForEachFrame([&](const Frame& frame) { bytes += frame.Bytes(); });
  return bytes;
}

Executor::Executor(CompileOptions options, const OpRegistry& ops)
    : options_(std::move(options)),
      ops_(&ops),
      warning_log_(std::make_shared<ShapeWarningLog>(options_.shape_warnings)) {}

PreparedProgram Executor::Prepare(const ProgramDesc& program, const std::vector<std::string>& feeds,
                                  const std::vector<std::string>& fetches) const {
  return PreparedProgram::Impl::Compile(program, feeds, fetches, *this, warning_log_, {});
}

PreparedProgram Executor::PrepareFrozen(const ProgramDesc& program, const Scope& scope,
                                        const std::vector<std::string>& feeds,
                                        const std::vector<std::string>& fetches) const {
  return PreparedProgram::Impl::Compile(program, feeds, fetches, *this, warning_log_,
                                        {&scope, nullptr});
}

PreparedProgram Executor::PrepareOwning(const ProgramDesc& program, Scope& scope,
                                        const std::vector<std::string>& feeds,
                                        const std::vector<std::string>& fetches) const {
  return PreparedProgram::Impl::Compile(program, feeds, fetches, *this, warning_log_,
                                        {&scope, &scope});
}

std::vector<Tensor> Executor::Run(const ProgramDesc& program, Scope& scope,
                                  const std::map<std::string, Tensor>& feeds,
                                  const std::vector<std::string>& fetches) const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : feeds) names.push_back(name);
  PreparedProgram prepared = Prepare(program, names, fetches);
  std::vector<Tensor> tensors;
  for (const std::string& name : prepared.feed_names()) {
    auto it = feeds.find(name);
    if (it == feeds.end())
      ThrowInvalid(fmt::format("the program's feed {} is missing", Quote(name)));
    tensors.push_back(it->second);
  }
  std::vector<Tensor> result;
  for (const Tensor& t : prepared.Run(scope, tensors)) result.push_back(t.Clone());
  return result;
}

}  // namespace coracle
