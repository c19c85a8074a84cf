#include <coracle/executor/internal/compiled_program.h>
#include <coracle/executor/internal/frame.h>
#include <coracle/executor/internal/planner.h>
#include <coracle/framework/base/logging.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/framework/op/file_use.h>
#include <coracle/framework/op/verifier.h>
#include <coracle/passes/inline_calls.h>
#include <coracle/passes/pass.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace coracle {
namespace {

// Takes the feed and fetch ops out of the root block; their variables, by col, are added where the
// caller named none.
void TakeFeedAndFetchOps(ProgramDesc& program, const OpRegistry& ops,
                         std::vector<std::string>* feeds, std::vector<std::string>* fetches) {
  std::map<int32_t, std::string> fed, fetched;
  auto note = [&](const OpDesc& op, OpKind kind, const std::vector<std::string>& vars,
                  auto& by_col) {
    const OpDef* def = ops.Find(op.type());
    if (!def || def->kind() != kind || vars.size() != 1) return;
    if (!by_col.emplace(def->AttrOf<int32_t>(op, "col"), vars[0]).second) {
      ThrowInvalid(fmt::format("{}: two ops have the same col", op.type()), "  " + Locate(op));
    }
  };
  BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumOps(); ++i) {
    note(root.op(i), OpKind::kFeed, root.op(i).Output("Out"), fed);
    note(root.op(i), OpKind::kFetch, root.op(i).Input("X"), fetched);
  }
  root.RemoveOpsIf([&](const OpDesc& op) {
    const OpDef* def = ops.Find(op.type());
    return def && def->kind() != OpKind::kCompute;
  });
  if (feeds->empty()) {
    for (const auto& [col, name] : fed) feeds->push_back(name);
  }
  if (fetches->empty()) {
    for (const auto& [col, name] : fetched) fetches->push_back(name);
  }
}

void RequireVars(const ProgramDesc& program, const std::vector<std::string>& names,
                 const char* what) {
  for (const std::string& name : names) {
    if (program.Root().FindVar(name)) continue;
    std::vector<std::string> known;
    for (size_t i = 0; i < program.Root().NumVars(); ++i)
      known.push_back(program.Root().var(i).name());
    throw Error(ErrorCode::kNotFound, fmt::format("cannot {} {}: the program has no such var{}",
                                                  what, Quote(name), DidYouMean(name, known)));
  }
}

VarMeta MetaOf(const Tensor& tensor) {
  return {VarType::kLoDTensor, tensor.dtype(), tensor.shape(), 0};
}

constexpr size_t kPlansOfSubBlock = 4;

// Where the value of a variable is when a stage begins.
ValueGuard KnownValue(const std::string& name, const Unit& unit,
                      const std::vector<std::string>& feed_names, std::span<const Tensor> feeds,
                      std::span<VarCell* const> slots, const Scope& scope) {
  ValueGuard known;
  known.name = name;
  auto feed = std::find(feed_names.begin(), feed_names.end(), name);
  if (feed != feed_names.end()) {
    known.feed = static_cast<int32_t>(feed - feed_names.begin());
    known.value = feeds[static_cast<size_t>(known.feed)].Clone();
    return known;
  }
  const int32_t slot = unit.FindSlot(name);
  const VarCell* cell = slot >= 0 && static_cast<size_t>(slot) < slots.size()
                            ? slots[static_cast<size_t>(slot)]
                            : nullptr;
  if (cell && cell->set && std::holds_alternative<Tensor>(cell->value)) {
    known.slot = slot;
    known.value = std::get<Tensor>(cell->value).Clone();
  } else {
    known.value = scope.Get(name).Clone();
  }
  return known;
}

}  // namespace

CompiledProgram::CompiledProgram(const ProgramDesc& program, std::vector<std::string> feeds,
                                 std::vector<std::string> fetches, const CompileOptions& options,
                                 const OpRegistry& ops)
    : program_(program),
      feeds_(std::move(feeds)),
      fetches_(std::move(fetches)),
      options_(options),
      ops_(&ops),
      seed_(program.random_seed ? program.random_seed : options.seed),
      memory_limit_(options.memory_limit ? options.memory_limit : DefaultMemoryLimit()) {
  VerifyOrThrow(program_, ops);
  for (const FileUse& use : FilesOf(program_, ops))
    RequireAllowed(use, FileAccess(options_.allow_files));
  TakeFeedAndFetchOps(program_, ops, &feeds_, &fetches_);
  // The body of a function is checked like the block that calls it only now that it is there.
  if (InlineCalls(program_)) VerifyOrThrow(program_, ops);
  RequireVars(program_, feeds_, "feed");
  RequireVars(program_, fetches_, "fetch");
  if (options_.optimize) {
    PassContext context{ops, {feeds_.begin(), feeds_.end()}, {fetches_.begin(), fetches_.end()}};
    RunPasses(program_, context);
  }
  uses_ = FindBlockUses(program_);
  units_.Find(0, {}, {});
}

void CompiledProgram::CheckFeeds(std::span<const Tensor> feeds) const {
  if (feeds.size() != feeds_.size()) {
    ThrowInvalid(fmt::format("the program takes {} feeds ({}), got {}", feeds_.size(),
                             Join(feeds_, ", "), feeds.size()));
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const VarDesc* var = program_.Root().FindVar(feeds_[i]);
    if (!var || var->type() != VarType::kLoDTensor) continue;
    const bool fits = feeds[i].shape().CompatibleWith(var->shape());
    if (feeds[i].dtype() == var->dtype() && (fits || !var->need_check_feed())) continue;
    VarMeta wanted = var->meta();
    if (!var->need_check_feed()) wanted.shape = feeds[i].shape();
    ThrowInvalid(
        fmt::format("feed {} {}", Quote(feeds_[i]), DescribeMismatch(wanted, MetaOf(feeds[i]))));
  }
}

// Files declare the shape of their export (or none); only where they ask for it does it bind a
// feed.
std::vector<std::string> CompiledProgram::NewWarningsOfShapes(std::span<const Tensor> feeds,
                                                              const Scope& scope) const {
  std::vector<std::string> warnings;
  const auto look = [&](const char* what, const std::string& name, const Tensor& tensor) {
    const VarDesc* var = program_.Root().FindVar(name);
    if (!var || var->shape().rank() == 0 || tensor.shape().CompatibleWith(var->shape())) return;
    if (!warned_.insert(name).second) return;
    warnings.push_back(
        fmt::format("{} {} has the shape {}, the program declares {}; it is run with what is there",
                    what, Quote(name), tensor.shape().ToString(), var->shape().ToString()));
  };
  for (size_t i = 0; i < feeds.size(); ++i) look("feed", feeds_[i], feeds[i]);
  for (size_t i = 0; i < program_.Root().NumVars(); ++i) {
    const VarDesc& var = program_.Root().var(i);
    if (!var.persistable() || var.type() != VarType::kLoDTensor) continue;
    const VarValue* value = scope.Find(var.name());
    const auto* tensor = value ? std::get_if<Tensor>(value) : nullptr;
    if (tensor && !tensor->empty()) look("variable", var.name(), *tensor);
  }
  return warnings;
}

// Who listens to messages may run this program: nothing is logged under the lock.
std::shared_ptr<const Plan> CompiledProgram::GetPlan(int32_t unit, size_t first_op,
                                                     const Plan* before,
                                                     std::span<const Tensor> feeds,
                                                     std::span<VarCell* const> slots,
                                                     const Scope& scope) const {
  std::vector<std::string> warnings;
  std::shared_ptr<const Plan> plan;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    plan = FindPlan(unit, first_op, before, feeds, slots, scope);
    if (!plan) {
      if (unit == 0 && !before) warnings = NewWarningsOfShapes(feeds, scope);
      plan = AddPlan(unit, first_op, before, feeds, slots, scope);
    }
  }
  for (const std::string& warning : warnings) LogMessage(MessageLevel::kWarning, warning);
  return plan;
}

std::shared_ptr<const Plan> CompiledProgram::FindPlan(int32_t unit_index, size_t first_op,
                                                      const Plan* before,
                                                      std::span<const Tensor> feeds,
                                                      std::span<VarCell* const> slots,
                                                      const Scope& scope) const {
  Unit& unit = units_[unit_index];
  for (auto it = unit.plans.begin(); it != unit.plans.end(); ++it) {
    const Plan& plan = **it;
    if (plan.first_op != first_op || !Frame::Fits(plan, before, feeds, slots, scope) ||
        !Frame::FitsScope(plan, scope))
      continue;
    unit.plans.splice(unit.plans.begin(), unit.plans, it);
    return unit.plans.front();
  }
  return nullptr;
}

std::shared_ptr<const Plan> CompiledProgram::AddPlan(int32_t unit_index, size_t first_op,
                                                     const Plan* before,
                                                     std::span<const Tensor> feeds,
                                                     std::span<VarCell* const> slots,
                                                     const Scope& scope) const {
  Unit& unit = units_[unit_index];
  PlanRequest request;
  request.program = &program_;
  request.uses = &uses_;
  request.units = &units_;
  request.unit = unit_index;
  request.ops = ops_;
  request.kernels = options_.kernels;
  request.files = FileAccess(options_.allow_files);
  request.memory_limit = memory_limit_;
  request.feeds = before ? before->carried : unit_index == 0 ? feeds_ : std::vector<std::string>();
  for (const Tensor& feed : feeds) request.feed_metas.push_back(MetaOf(feed));
  if (unit_index == 0) request.fetches = fetches_;
  request.first_op = first_op;
  request.slots = slots;
  request.scope = &scope;
  if (before && !before->needs.empty()) {
    if (static_cast<size_t>(before->next_op) == before->first_op) {
      for (const ValueGuard& known : before->relies)
        request.relies.push_back(KnownValue(known.name, unit, request.feeds, feeds, slots, scope));
    }
    request.relies.push_back(KnownValue(before->needs, unit, request.feeds, feeds, slots, scope));
  }
  // Sub-blocks see more shapes: each iteration of a loop may have its own.
  const size_t most = unit_index == 0 ? options_.max_plans : kPlansOfSubBlock * options_.max_plans;
  unit.plans.push_front(std::make_shared<const Plan>(MakePlan(request)));
  if (unit.plans.size() > std::max<size_t>(1, most)) unit.plans.pop_back();
  return unit.plans.front();
}

}  // namespace coracle
