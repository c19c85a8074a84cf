#pragma once
// PlanCache: the plans of a compiled program, made when no existing one fits a stage.
// Internal to executor/.

#include <coracle/executor/planner/planner.h>
#include <coracle/executor/planner/shape_warnings.h>

#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace coracle::inline internal {

class PlanCache {
 public:
  // Refers to the same objects as `context`. `feeds` and `fetches`: of the root block. `max_plans`:
  // how many plans to keep for the root block; the least recently used one is dropped first.
  PlanCache(const PlanContext& context, std::vector<std::string> feeds,
            std::vector<std::string> fetches, size_t max_plans,
            std::shared_ptr<ShapeWarningLog> warning_log)
      : context_(context),
        feeds_(std::move(feeds)),
        fetches_(std::move(fetches)),
        max_plans_(max_plans),
        warning_log_(std::move(warning_log)),
        shape_warnings_(context.program) {}

  // The plan of a procedure's block from op `first_op` on, for the state that the stage finds.
  // Thread-safe. Throws the errors of MakePlan.
  std::shared_ptr<const Plan> Get(ProcedureId procedure, size_t first_op, const StageInput& input);

 private:
  using Plans = std::list<std::shared_ptr<const Plan>>;  // most recently used first

  // These are called under the lock.
  std::shared_ptr<const Plan> Find(Plans& plans, size_t first_op, const StageInput& input) const;
  std::shared_ptr<const Plan> Make(ProcedureId procedure, size_t first_op, const StageInput& input);
  IdVector<FeedId, FeedGuard> FeedsOf(ProcedureId procedure, const StageInput& input) const;
  std::vector<ValueGuard> KnownValues(const PlanRequest& request);
  Plans& PlansOf(ProcedureId procedure);

  const PlanContext context_;
  const std::vector<std::string> feeds_, fetches_;
  const size_t max_plans_;
  const std::shared_ptr<ShapeWarningLog> warning_log_;
  std::mutex mutex_;
  ProcedureTable procedures_;
  std::deque<Plans> plans_;  // by procedure
  ShapeWarnings shape_warnings_;
};

}  // namespace coracle::inline internal
