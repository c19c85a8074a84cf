#pragma once
// Probe: the values that a training step reports in addition to its loss: learning rates, the
// effect of clips and, for debug_info, the size of every value.

#include <coracle/communication/communicator.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/log/clip_report.h>
#include <coracle/train/report/metric.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

class Probe {
 public:
  // `program` includes the optimizer's ops. `all` is for debug_info. `gradients`: see Gradients.
  // `parts`: see Net::gradient_parts, for these ranks.
  Probe(const ProgramDesc& program, bool all, bool gradients,
        const std::vector<std::string>& parts = {}, const Ranks& ranks = Ranks());

  // The variables that a step must fetch for the probe.
  const std::vector<std::string>& fetches() const { return fetches_; }
  // Call it before the first step; `scope` has the initial values.
  void Begin(const Scope& scope);
  // Takes the values fetched by a run of the program. They must stay valid until the next run.
  void Receive(std::span<const Tensor> fetched);

  // Updates the learning rates, the effect of clips since the last Restart, and the sizes; call it
  // at a step to report. All ranks must call it, and Gradients. Values about gradients of
  // parameters cover the whole batch, all others only this rank's rows.
  void Update(const Scope& scope);
  // Resets the statistics of clips.
  void Restart(Scope& scope);
  const std::vector<NamedValue>& learning_rates() const { return rates_; }
  // Dense gradients of the last step, by their parameters; empty unless `gradients` was set.
  std::vector<std::pair<std::string, Tensor>> Gradients() const;
  const std::vector<ClipReport>& clips() const { return reports_; }
  // The lines of debug_info from the last Update.
  const std::vector<std::string>& Lines() const { return lines_; }

 private:
  // A clip by norm.
  struct Clip {
    std::string group;
    // Indices in fetches_: the norm, and the number of norms so far.
    size_t norm, count;
    double limit;
    double seen = 0;  // the last count
    int64_t steps = 0, clipped = 0;
    double largest = 0;  // largest norm since the last Update
  };
  // A clip that an op clip_statistics counts, in a persistable variable.
  struct Counted {
    ClipReport::Kind kind;
    std::string name, statistics;
    double times = 0, acted = 0;  // at the last Restart
  };
  struct Size {
    std::string kind, name;
    size_t fetch;  // if the variable is not persistable
  };

  size_t Fetch(const std::string& name);
  Tensor Whole(const std::string& gradient, size_t fetch) const;
  void FindSizes(const ProgramDesc& program);
  void DescribeSizes(const Scope& scope);

  std::vector<std::string> fetches_;
  std::span<const Tensor> fetched_;
  std::vector<std::string> rate_names_;
  std::vector<NamedValue> rates_;
  std::vector<Clip> clips_;
  std::vector<Counted> counted_;
  std::vector<ClipReport> reports_;
  std::vector<std::pair<std::string, size_t>> gradients_;  // parameter, its gradient's fetch
  std::vector<Size> sizes_;
  std::vector<std::string> lines_;
  std::vector<std::string> parts_;
  Ranks ranks_;
};

}  // namespace coracle::inline internal
