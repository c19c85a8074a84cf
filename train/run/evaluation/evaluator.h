#pragma once
// Evaluator: runs a program on the rows of a data source.

#include <coracle/executor/executor.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/report/metric.h>
#include <coracle/train/run/feeder.h>
#include <coracle/train/run/ranks/carry.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// Runs a compiled program over the rows of a source, in order.
class Evaluator {
 public:
  // The program's feeds are the inputs of `feeder`, then the states of `carry`. Its fetches are the
  // variables of `sums`, then the states to carry. `iterations` is the number of batches, from the
  // first one on; 0: all. If `share` is set, the last feed is kRankShare of that dtype.
  Evaluator(PreparedProgram program, Feeder feeder, StateCarry carry, MetricSums sums,
            DataSourcePtr data, const BatchOptions& batch, int64_t iterations = 0,
            const Ranks& ranks = Ranks(), std::optional<DType> share = std::nullopt);

  // Computes exact means over all rows: each batch is weighted by its number of rows. States begin
  // with zeros. With several ranks, each rank runs its rows of every batch, and all ranks get the
  // values of all rows. `stop` is called after each batch. Returns false if `stop` (or the
  // program's own CompileOptions::stop) ended the run.
  bool Run(Scope& scope, const std::function<bool()>& stop = {});
  // Runs the first batch, to find early what does not fit.
  void Try(Scope& scope);
  // The values of the last Run: the loss if there is one, then the metrics.
  std::vector<double> Values() const;
  std::vector<ConfusionMatrix> Confusions() const { return sums_.Confusions(); }
  int64_t rows() const { return rows_; }

  // Another program with the same feeds and fetches, for evaluations in floating point.
  void SetFloatProgram(PreparedProgram program) { float_program_ = std::move(program); }
  // Lets the next runs use that program, if there is one.
  void UseFloat(bool use) { in_float_ = use && float_program_.has_value(); }

 private:
  void Begin();
  const std::vector<Tensor>& Feeds(const std::vector<Tensor>& batch);
  void RunBatch(Scope& scope);
  bool RunBatches(Scope& scope, const std::function<bool()>& stop);

  PreparedProgram& Program() { return in_float_ ? *float_program_ : program_; }

  PreparedProgram program_;
  std::optional<PreparedProgram> float_program_;
  bool in_float_ = false;
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

}  // namespace coracle::inline internal
