#pragma once
// Probe: what a training step tells beside its loss: learning rates, what clips did, and, for
// debug_info, the size of every value.

#include <coracle/distribute/ranks.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/log/clip_report.h>
#include <coracle/train/run/metric.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

class Probe {
 public:
  // `program`: with its optimizer's ops. `all`: debug_info. `gradients`: see Gradients. `parts`:
  // see Net::gradient_parts, of these ranks.
  Probe(const ProgramDesc& program, bool all, bool gradients,
        const std::vector<std::string>& parts = {}, const Ranks& ranks = Ranks());

  // What a step must fetch for the probe.
  const std::vector<std::string>& fetches() const { return fetches_; }
  // The first step is to come: `scope` is what it begins with.
  void Begin(const Scope& scope);
  // What a run of the program fetched. Valid until the next run.
  void Receive(std::span<const Tensor> fetched);

  // At a step to report: learning rates, clips since the last Restart, and sizes. Of several ranks
  // all must call it, and Gradients; what they tell of gradients of parameters is of the whole
  // batch, and the rest of the rank's rows.
  void Update(const Scope& scope);
  // What clips do is counted anew.
  void Restart(Scope& scope);
  const std::vector<NamedValue>& learning_rates() const { return rates_; }
  // Dense gradients of the last step, by their parameters; none unless they were wanted.
  std::vector<std::pair<std::string, Tensor>> Gradients() const;
  const std::vector<ClipReport>& clips() const { return reports_; }
  // Lines of debug_info from the last Update.
  const std::vector<std::string>& Lines() const { return lines_; }

 private:
  // By norm.
  struct Clip {
    std::string group;
    size_t norm, count;  // among fetches_: the norm, and how many norms there were
    double limit;
    double seen = 0;  // the last count
    int64_t steps = 0, clipped = 0;
    double largest = 0;  // of those since the last Update
  };
  // Counted by an op clip_statistics, in a persistable variable.
  struct Counted {
    ClipReport::Kind kind;
    std::string name, statistics;
    double times = 0, acted = 0;  // at the last Restart
  };
  struct Size {
    std::string kind, name;
    size_t fetch;  // for what is not persistable
  };

  size_t Fetch(const std::string& name);
  Tensor Whole(const std::string& gradient, size_t fetch) const;
  void FindLearningRates(const ProgramDesc& program);
  void FindClips(const BlockDesc& block);
  void FindCounted(const BlockDesc& block);
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

}  // namespace coracle
