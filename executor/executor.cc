#include <coracle/executor/executor.h>
#include <coracle/executor/internal/compiled_program.h>
#include <coracle/executor/internal/frame.h>
#include <coracle/executor/internal/nan_check.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace coracle {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool SameTypes(const std::vector<VarMeta>& metas, std::span<const Tensor> feeds) {
  if (metas.size() != feeds.size()) return false;
  for (size_t i = 0; i < metas.size(); ++i) {
    if (metas[i].dtype != feeds[i].dtype() || !(metas[i].shape == feeds[i].shape())) return false;
  }
  return true;
}

}  // namespace

// The frame of one stage of the program: usually there is one. See Plan::next_op.
struct Stage {
  std::unique_ptr<Frame> frame;
  std::vector<VarMeta> feed_metas;  // of the frame's plan
  std::vector<Tensor> fetched;
  std::vector<OpTime> times;

  bool Serves(const Scope& scope, std::span<const Tensor> feeds) const {
    return frame && SameTypes(feed_metas, feeds) &&
           (frame->StillFits(scope) || Frame::Fits(*frame->plan(), scope));
  }

  void Adopt(std::shared_ptr<const Plan> plan, std::span<const Tensor> feeds,
             uint64_t memory_limit) {
    if (frame && frame->plan() == plan) return;
    frame.reset();  // its memory first
    frame = std::make_unique<Frame>(plan, memory_limit);
    feed_metas.clear();
    for (const Tensor& feed : feeds)
      feed_metas.push_back({VarType::kLoDTensor, feed.dtype(), feed.shape(), 0});
    fetched.assign(plan->fetch_values.size(), Tensor());
    times.clear();
    for (const PlanStep& s : plan->steps) {
      times.push_back(
          {s.op_type, s.outputs.empty() ? "" : plan->values[static_cast<size_t>(s.outputs[0])].name,
           0, 0});
    }
  }
};

struct PreparedProgram::Impl {
  std::shared_ptr<const CompiledProgram> compiled;
  std::vector<Stage> stages = std::vector<Stage>(1);
  uint64_t step = 0;

  const std::vector<Tensor>& Run(Scope& scope, std::span<const Tensor> feeds) {
    Clock::time_point start = Clock::now();
    if (!stages[0].Serves(scope, feeds))
      stages[0].Adopt(compiled->GetPlan(feeds, scope), feeds, compiled->memory_limit());
    RunStage(stages[0], scope, feeds, start);
    size_t i = 0;
    while (stages[i].frame->plan()->next_op >= 0) {
      if (++i == stages.size()) stages.emplace_back();
      const Stage& before = stages[i - 1];
      std::shared_ptr<const Plan> plan =
          compiled->GetNextPlan(*before.frame->plan(), before.fetched, scope);
      stages[i].Adopt(std::move(plan), before.fetched, compiled->memory_limit());
      RunStage(stages[i], scope, before.fetched, start);
    }
    ++step;
    return stages[i].fetched;
  }

  void RunStage(Stage& stage, Scope& scope, std::span<const Tensor> feeds,
                Clock::time_point start) {
    Frame& frame = *stage.frame;
    frame.BindScope(scope);
    frame.BindFeeds(feeds);
    frame.SetRun(compiled->seed(), step);
    RunSteps(stage, start);
    const std::vector<int32_t>& values = frame.plan()->fetch_values;
    for (size_t i = 0; i < values.size(); ++i) frame.Fetch(values[i], feeds, &stage.fetched[i]);
  }

  void RunSteps(Stage& stage, Clock::time_point start) {
    const CompileOptions& options = compiled->options();
    Frame& frame = *stage.frame;
    const std::vector<PlanStep>& steps = frame.plan()->steps;
    if (!options.profile && !options.check_nan_inf && options.time_limit <= 0) {
      for (const PlanStep& s : steps) s.kernel(frame);
      return;
    }
    Clock::time_point before = Clock::now();
    for (size_t i = 0; i < steps.size(); ++i) {
      steps[i].kernel(frame);
      if (options.profile) {
        stage.times[i].seconds += SecondsSince(before);
        ++stage.times[i].runs;
      }
      if (options.check_nan_inf) CheckFinite(frame, steps[i]);
      if (options.time_limit > 0 && SecondsSince(start) > options.time_limit)
        ThrowTimeLimit(steps, i);
      before = Clock::now();
    }
  }

  void CheckFinite(Frame& f, const PlanStep& s) const {
    for (int32_t v : s.outputs) {
      const PlanValue& value = f.plan()->values[static_cast<size_t>(v)];
      int64_t index = FindNonFiniteIn(f, v, value);
      if (index < 0) continue;
      throw Error(ErrorCode::kOutOfRange,
                  fmt::format("{}: output var {} {} has a nan or inf at index {}", s.op_type,
                              Quote(value.name), value.meta.ToString(), index),
                  "  " + s.where);
    }
  }

  // In selected rows: the index among the stored elements.
  static int64_t FindNonFiniteIn(Frame& f, int32_t v, const PlanValue& value) {
    TensorArg arg{v, value.meta.dtype, value.meta.shape, value.numel, value.meta.type};
    if (arg.type == VarType::kLoDTensor)
      return FindNonFinite(f.Data<const void>(arg), arg.dtype, arg.numel);
    if (arg.type != VarType::kSelectedRows) return -1;
    const auto* rows = std::get_if<SelectedRows>(&f.ValueOf(arg));
    return rows ? FindNonFinite(rows->value.raw(), rows->value.dtype(), rows->value.numel()) : -1;
  }

  [[noreturn]] void ThrowTimeLimit(const std::vector<PlanStep>& steps, size_t i) const {
    throw Error(ErrorCode::kDeadlineExceeded,
                fmt::format("the run passed its time limit of {} s after op {} of {} ({})",
                            compiled->options().time_limit, i + 1, steps.size(), steps[i].op_type));
  }
};

PreparedProgram::PreparedProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreparedProgram::PreparedProgram(const PreparedProgram& other) : impl_(std::make_unique<Impl>()) {
  impl_->compiled = other.impl_->compiled;
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
  return impl_->Run(scope, feeds);
}

const std::vector<std::string>& PreparedProgram::feed_names() const {
  return impl_->compiled->feeds();
}
const std::vector<std::string>& PreparedProgram::fetch_names() const {
  return impl_->compiled->fetches();
}
const ProgramDesc& PreparedProgram::program() const { return impl_->compiled->program(); }
uint64_t PreparedProgram::step() const { return impl_->step; }
void PreparedProgram::SetStep(uint64_t step) { impl_->step = step; }
const std::shared_ptr<const CompiledProgram>& PreparedProgram::compiled() const {
  return impl_->compiled;
}

std::vector<OpTime> PreparedProgram::Profile() const {
  std::vector<OpTime> times;
  if (!impl_->compiled->options().profile) return times;
  for (const Stage& stage : impl_->stages)
    times.insert(times.end(), stage.times.begin(), stage.times.end());
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
    table += fmt::format("{:>10.3f} {:>6.2f} {:>8} {:>10.2f}  {:<32} {}\n", t.seconds * 1e3,
                         total > 0 ? 100 * t.seconds / total : 0.0, t.runs,
                         t.runs ? t.seconds * 1e6 / static_cast<double>(t.runs) : 0.0, t.op_type,
                         t.output);
  }
  return table + fmt::format("{:>10.3f} ms in all\n", total * 1e3);
}

uint64_t PreparedProgram::WorkspaceBytes() const {
  uint64_t bytes = 0;
  for (const Stage& stage : impl_->stages) {
    if (!stage.frame) continue;
    const Plan& plan = *stage.frame->plan();
    bytes += plan.arena_bytes + plan.fetch_bytes + plan.constant_bytes + stage.frame->ValueBytes();
  }
  return bytes;
}

Executor::Executor(CompileOptions options, const OpRegistry& ops) : options_(options), ops_(&ops) {}

PreparedProgram Executor::Prepare(const ProgramDesc& program, const std::vector<std::string>& feeds,
                                  const std::vector<std::string>& fetches) const {
  auto impl = std::make_unique<PreparedProgram::Impl>();
  impl->compiled =
      std::make_shared<const CompiledProgram>(program, feeds, fetches, options_, *ops_);
  return PreparedProgram(std::move(impl));
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
