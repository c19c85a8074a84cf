#include <coracle/train/data/row_error.h>
#include <coracle/train/run/evaluation/evaluator.h>
#include <coracle/train/run/programs.h>

#include <utility>

namespace coracle::inline internal {

Evaluator::Evaluator(PreparedProgram program, Feeder feeder, StateCarry carry, MetricSums sums,
                     DataSourcePtr data, const BatchOptions& batch, int64_t iterations,
                     const Ranks& ranks, std::optional<DType> share)
    : program_(std::move(program)),
      feeder_(std::move(feeder)),
      carry_(std::move(carry)),
      sums_(std::move(sums)),
      reader_(std::move(data), batch),
      batches_(reader_.batches_per_epoch()),
      ranks_(ranks),
      share_(share) {
  if (iterations > 0) batches_ = std::min(batches_, iterations);
}

bool Evaluator::Run(Scope& scope, const std::function<bool()>& stop) {
  try {
    return RunBatches(scope, stop);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kCancelled) throw;
    return false;
  }
}

void Evaluator::Try(Scope& scope) {
  Begin();
  RunBatch(scope);
}

void Evaluator::Begin() {
  reader_.Seek(0);
  Program().SetStep(0);
  carry_.Reset();
  sums_.Clear();
  rows_ = 0;
}

const std::vector<Tensor>& Evaluator::Feeds(const std::vector<Tensor>& batch) {
  const std::vector<Tensor>& feeds = carry_.Append(feeder_.Bind(batch));
  if (!share_) return feeds;
  feeds_with_share_.assign(feeds.begin(), feeds.end());
  feeds_with_share_.push_back(ShareOfRows(reader_, *share_));
  return feeds_with_share_;
}

void Evaluator::RunBatch(Scope& scope) {
  const std::vector<Tensor>& batch = reader_.Next();
  const int64_t rows = reader_.own_rows();
  NameRowsInErrors(reader_, batch, [&] {
    const std::vector<Tensor>& out = Program().Run(scope, Feeds(batch));
    if (rows > 0) sums_.Add(out, rows);
    carry_.Receive(std::span(out).subspan(sums_.fetches().size()));
  });
  rows_ += reader_.rows_of_all();
}

bool Evaluator::RunBatches(Scope& scope, const std::function<bool()>& stop) {
  Begin();
  for (int64_t b = 0; b < batches_; ++b) {
    if (ranks_.Any(stop && stop())) return false;
    RunBatch(scope);
  }
  sums_.Merge(ranks_);
  return true;
}

std::vector<double> Evaluator::Values() const {
  std::vector<double> values(sums_.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = sums_.Value(i);
  return values;
}

}  // namespace coracle::inline internal
