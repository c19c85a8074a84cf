#include <coracle/executor/planner/plan_cache.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/trace.h>

#include <algorithm>
#include <exception>

namespace coracle::inline internal {
namespace {

// Plans of a sub-block per plan of the root, since each round of a loop may have other shapes.
constexpr size_t kPlansOfSubBlock = 4;

// Detail line for errors of a program if some variables have other shapes than it declares.
constexpr const char* kDeclaredShapes =
    "the shapes that the warnings name are not those that the program declares, which passes rely "
    "on: declare what is there (coracle set-shape), or run without passes (--disabled_passes=all, "
    "CompileOptions::optimize = false)";

}  // namespace

// Planning holds the lock, so that two threads do not make the same plan. Logging does not, since a
// log sink may run this program.
std::shared_ptr<const Plan> PlanCache::Get(ProcedureId procedure, size_t first_op,
                                           const StageInput& input) {
  std::vector<ShapeWarning> warnings;
  std::shared_ptr<const Plan> plan;
  std::exception_ptr failure;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    plan = Find(PlansOf(procedure), first_op, input);
    if (plan) return plan;
    const bool begins = procedure == kRootProcedure && !input.before;
    if (begins) warnings = shape_warnings_.New(feeds_, input.feeds, input.scope);
    try {
      plan = Make(procedure, first_op, input);
    } catch (const Error& error) {
      const bool by_shapes = error.code() == ErrorCode::kInvalidArgument && shape_warnings_.any() &&
                             context_.optimized;
      failure = by_shapes ? std::make_exception_ptr(error.WithDetail(kDeclaredShapes))
                          : std::current_exception();
    }
  }
  warning_log_->Log(warnings);
  if (failure) std::rethrow_exception(failure);
  return plan;
}

PlanCache::Plans& PlanCache::PlansOf(ProcedureId procedure) {
  if (plans_.size() <= procedure.index()) plans_.resize(procedure.index() + 1);
  return plans_[procedure.index()];
}

std::shared_ptr<const Plan> PlanCache::Find(Plans& plans, size_t first_op,
                                            const StageInput& input) const {
  for (auto it = plans.begin(); it != plans.end(); ++it) {
    const Plan& plan = **it;
    if (plan.first_op != first_op || !GuardsHold(plan, input) || !MatchesScope(plan, input.scope))
      continue;
    plans.splice(plans.begin(), plans, it);
    return plans.front();
  }
  return nullptr;
}

std::shared_ptr<const Plan> PlanCache::Make(ProcedureId procedure, size_t first_op,
                                            const StageInput& input) {
  const bool root = procedure == kRootProcedure;
  TraceSpan span("plan", "plan");
  PlanRequest request{procedure, first_op, input, FeedsOf(procedure, input), {}, {}};
  request.known_values = KnownValues(request);
  if (root) request.fetches = fetches_;
  Plans& plans = PlansOf(procedure);
  plans.push_front(std::make_shared<const Plan>(MakePlan(context_, request, procedures_)));
  span.Set("block", int64_t{procedures_[procedure].block()});
  span.Set("first_op", static_cast<int64_t>(first_op));
  span.Set("steps", static_cast<int64_t>(plans.front()->steps.size()));
  span.Set("workspace", static_cast<int64_t>(plans.front()->FrameBytes()));
  const size_t most = root ? max_plans_ : kPlansOfSubBlock * max_plans_;
  if (plans.size() > std::max<size_t>(1, most)) plans.pop_back();
  return plans.front();
}

IdVector<FeedId, FeedGuard> PlanCache::FeedsOf(ProcedureId procedure,
                                               const StageInput& input) const {
  static const std::vector<std::string> none;
  const std::vector<std::string>& names = input.before                  ? input.before->live_out
                                          : procedure == kRootProcedure ? feeds_
                                                                        : none;
  IdVector<FeedId, FeedGuard> feeds;
  for (size_t i = 0; i < input.feeds.size(); ++i) {
    const Tensor& feed = input.feeds[i];
    feeds.Add({names[i], VarMeta{VarType::kLoDTensor, feed.dtype(), feed.shape(), 0}});
  }
  return feeds;
}

// The values that the new stage may rely on: the value that the previous stage needed, and, if the
// previous stage ended before its first op (which needs several values), the values that it knew.
std::vector<ValueGuard> PlanCache::KnownValues(const PlanRequest& request) {
  const Plan* before = request.input.before;
  std::vector<ValueGuard> known;
  if (!before || before->next->shape_var.empty()) return known;
  const Procedure& procedure = procedures_[request.procedure];
  const auto add = [&](const std::string& name) {
    known.push_back(GuardValue(name, request.feeds, procedure.FindCell(name), request.input));
  };
  if (before->next->first_op == before->first_op) {
    for (const ValueGuard& guard : before->guards.values) add(guard.name);
  }
  add(before->next->shape_var);
  return known;
}

}  // namespace coracle::inline internal
