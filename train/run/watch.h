#pragma once
// Watches evaluations: which one is the best, and when to stop.

#include <coracle/train/job/job.h>
#include <coracle/train/run/snapshot/snapshot.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

class Watch {
 public:
  Watch() = default;  // watches nothing
  // `set_names` are the job's test sets, `values` the printed names of each set's values. Throws
  // kNotFound for an unknown name.
  Watch(const JobConfig& config, const std::vector<std::string>& set_names,
        const std::vector<std::vector<std::string>>& values);

  bool watches(const std::string& set) const { return active_ && set == set_; }
  // Takes the evaluation of the watched set. Returns whether it is the best so far: the first one,
  // or better by more than min_delta. A value that is not finite is never the best. An evaluation
  // that does not count may be the best if the job keeps the best, but early_stop ignores it.
  bool Add(int64_t step, const std::vector<NamedValue>& values, bool counts = true);

  bool should_stop() const;         // the job's early_stop says so
  std::string StopMessage() const;  // the reason
  const BestRecord& best() const { return best_; }
  // Ignores the parts of the record that belong to another metric.
  void Load(const BestRecord& best);
  // Makes the next finite value the best, whatever it is. early_stop keeps its state.
  void Forget() { best_.metric.clear(); }

 private:
  bool active_ = false, keeps_best_ = false;
  WatchConfig config_;
  std::optional<EarlyStopConfig> early_stop_;
  std::string set_, metric_, shown_;
  BestRecord best_;
};

}  // namespace coracle::inline internal
