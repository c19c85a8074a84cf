#pragma once
// Evaluator: a program over the rows of a data source.

#include <coracle/executor/executor.h>
#include <coracle/train/data/carry.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/feeder.h>
#include <coracle/train/run/metric.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

// Runs a compiled program over the rows of a source, in order.
class Evaluator {
 public:
  // The program's feeds are those of `feeder`, then those of `carry`; its fetches are those of
  // `sums`, then the states to carry. `iterations`: batches, from the first on; 0: all. `share`:
  // kRankShare of that dtype is the last feed.
  Evaluator(PreparedProgram program, Feeder feeder, StateCarry carry, MetricSums sums,
            DataSourcePtr data, const BatchOptions& batch, int64_t iterations = 0,
            const Ranks& ranks = Ranks(), std::optional<DType> share = std::nullopt);

  // Of several ranks each runs its rows of every batch, and all have the values of all rows. Exact
  // means over all rows: every batch weighs as many rows as it has. States begin with
  // zeros. Returns false when `stop`, asked after each batch, ended it (or the program's
  // own CompileOptions::stop did).
  bool Run(Scope& scope, const std::function<bool()>& stop = {});
  // Runs the first batch, so that what does not fit shows now.
  void Try(Scope& scope);
  // Of the last Run: the loss if there is one, then the metrics.
  std::vector<double> Values() const;
  int64_t rows() const { return rows_; }

 private:
  void Begin();
  const std::vector<Tensor>& Feeds(const std::vector<Tensor>& batch);
  void RunBatch(Scope& scope);
  bool RunBatches(Scope& scope, const std::function<bool()>& stop);

  PreparedProgram program_;
  Feeder feeder_;
  StateCarry carry_;
  MetricSums sums_;
  BatchReader reader_;
  int64_t batches_;
  Ranks ranks_;
  std::optional<DType> share_;
  std::vector<Tensor> feeds_with_share_;
  int64_t rows_ = 0;
};

}  // namespace coracle
