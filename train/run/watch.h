#pragma once
// Watching evaluations: which is the best, and when to stop.

#include <coracle/train/job/job.h>
#include <coracle/train/run/snapshot.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle {

class Watch {
 public:
  // `set_names` are the job's test sets, `values` of each its printed names. Throws kNotFound for a
  // name that is not among them.
  Watch(const JobConfig& config, const std::vector<std::string>& set_names,
        const std::vector<std::vector<std::string>>& values);

  bool watches(const std::string& set) const { return active_ && set == set_; }
  // Takes the evaluation of the watched set. Returns whether it is the best so far: the first, or
  // better by more than min_delta; what is not finite never is. One that does not count may be the
  // best, where the job keeps that. It is nothing to early_stop.
  bool Add(int64_t step, const std::vector<NamedValue>& values, bool counts = true);

  bool should_stop() const;         // the job's early_stop says so
  std::string StopMessage() const;  // why
  const BestRecord& best() const { return best_; }
  // Leaves out what is of another metric: the best, or what early_stop goes by.
  void Load(const BestRecord& best);
  // The next finite value is the best, whatever it is. early_stop forgets nothing.
  void Forget() { best_.metric.clear(); }

 private:
  bool active_ = false, keeps_best_ = false;
  WatchConfig config_;
  std::optional<EarlyStopConfig> early_stop_;
  std::string set_, metric_, shown_;
  BestRecord best_;
};

}  // namespace coracle
