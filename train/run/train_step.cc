#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/train/data/row_error.h>
#include <coracle/train/run/ranks/same_data.h>
#include <coracle/train/run/train_step.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace coracle::inline internal {
namespace {

BatchReader OpenReader(const JobConfig& config, const DataSourcePtr& data, const Ranks& ranks) {
  try {
    return BatchReader(data, {.batch_size = config.batch_size,
                              .shuffle = config.shuffle,
                              .drop_last = config.drop_last,
                              .seed = config.random_seed,
                              .prefetch = config.prefetch,
                              .rank = ranks.rank(),
                              .ranks = ranks.size()});
  } catch (const Error& e) {
    throw e.WithPrefix(config.Place("batch_size"));
  }
}

// The phases that the job's steps may have.
std::vector<QuantizePhase> PhasesOf(const JobConfig& config) {
  std::vector<QuantizePhase> phases = {QuantizePhase::kQuantize};
  if (!config.quantize) return phases;
  if (config.quantize->start_step > 0) phases.push_back(QuantizePhase::kObserve);
  if (config.quantize->freeze_step > 0) phases.push_back(QuantizePhase::kFreeze);
  return phases;
}

std::map<QuantizePhase, PreparedProgram> Prepare(const JobConfig& config, const Net& net,
                                                 const StepWindow& window, const StateCarry& carry,
                                                 const Probe& probe, const Executor& executor,
                                                 const Ranks& ranks) {
  std::vector<std::string> fetches = window.fetches();
  fetches.insert(fetches.end(), carry.from().begin(), carry.from().end());
  fetches.insert(fetches.end(), probe.fetches().begin(), probe.fetches().end());
  std::vector<std::string> feeds = net.Feeds(config);
  if (ranks.several()) feeds.emplace_back(kRankShare);
  std::map<QuantizePhase, PreparedProgram> programs;
  for (const QuantizePhase phase : PhasesOf(config)) {
    PreparedProgram program =
        phase == QuantizePhase::kQuantize
            ? executor.Prepare(net.program, feeds, fetches)
            : executor.Prepare(ProgramOfPhase(net.program, phase, executor.ops()), feeds, fetches);
    program.SetCommunicator(ranks.communicator());
    programs.emplace(phase, std::move(program));
  }
  return programs;
}

DType ShareType(const Net& net, const Ranks& ranks) {
  return ranks.several() ? net.program.Root().FindVar(kRankShare)->dtype() : DType::kFloat32;
}

}  // namespace

TrainStep::TrainStep(const JobConfig& config, const Net& net, DataSourcePtr data,
                     const Executor& executor, const Ranks& ranks)
    : config_(config),
      ranks_(ranks),
      data_(std::move(data)),
      reader_(OpenReader(config, data_, ranks)),
      batches_per_epoch_(reader_.batches_per_epoch()),
      carry_(net.program, config.carry, config.batch_size, config.source, ranks),
      feeder_(net.program, net.columns, *data_, config.bind, config.Place("train"), ranks),
      window_(net.Loss(config), net.metrics, config.average_loss * IterSize()),
      probe_(net.program, config.debug_info, config.log.histogram_interval > 0, net.gradient_parts,
             ranks),
      programs_(Prepare(config, net, window_, carry_, probe_, executor, ranks)),
      share_dtype_(ShareType(net, ranks)) {}

TrainStep::Result TrainStep::Run(Scope& scope) {
  Result result{0, epoch(), 0};
  for (int64_t run = 0; run < IterSize(); ++run) result.loss += RunBatch(scope, &result.rows);
  result.loss /= static_cast<double>(IterSize());
  return result;
}

void TrainStep::SetPhase(QuantizePhase phase) {
  const auto step = Program().step();
  phase_ = phase;
  Program().SetStep(step);
}

// The batch, carried states, and the rank's share.
const std::vector<Tensor>& TrainStep::Feeds(const std::vector<Tensor>& batch) {
  const std::vector<Tensor>& feeds = carry_.Append(feeder_.Bind(batch));
  if (!ranks_.several()) return feeds;
  feeds_of_ranks_.assign(feeds.begin(), feeds.end());
  feeds_of_ranks_.push_back(ShareOfRows(reader_, share_dtype_));
  return feeds_of_ranks_;
}

// Runs the program on the next batch. Returns its loss and adds its number of rows.
double TrainStep::RunBatch(Scope& scope, int64_t* rows) {
  if (reader_.position() % batches_per_epoch_ == 0) carry_.Reset();
  const std::vector<Tensor>& batch = reader_.Next();
  const std::vector<Tensor>& out = NameRowsInErrors(
      reader_, batch,
      [&]() -> const std::vector<Tensor>& { return Program().Run(scope, Feeds(batch)); });
  const size_t sums = window_.fetches().size(), states = carry_.from().size();
  carry_.Receive(std::span(out).subspan(sums, states));
  probe_.Receive(std::span(out).subspan(sums + states));
  const int64_t own = reader_.own_rows(), all = reader_.rows_of_all();
  // The loss of a rank without rows is ignored.
  double loss = ScalarOf(out[0], config_.loss);
  if (ranks_.several()) {
    loss = own > 0 ? loss * static_cast<double>(own) : 0;
    ranks_.Sum({&loss, 1});
    loss /= static_cast<double>(all);
  }
  const bool finite = std::isfinite(loss);
  if (!finite) carry_.Reset();  // its states are not finite either
  // The values of a skipped step are not counted, since the model did not learn from it.
  if (finite || config_.training.non_finite_loss != NonFiniteLoss::kSkip)
    NameRowsInErrors(reader_, batch, [&] { window_.Add(out, own, loss, all); });
  *rows += all;
  return loss;
}

int64_t TrainStep::TotalSteps() const {
  constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
  int64_t by_epochs = kEndless;
  if (config_.epochs > 0 && config_.epochs < kEndless / batches_per_epoch_)
    by_epochs = UpdatesOf(config_.epochs * batches_per_epoch_);
  return std::min(config_.max_iter > 0 ? config_.max_iter : kEndless, by_epochs);
}

int64_t TrainStep::last_epoch() const {
  return std::max<int64_t>(reader_.position() - 1, 0) / batches_per_epoch_;
}

bool TrainStep::EpochEnded() const {
  return epoch() != (reader_.position() - IterSize()) / batches_per_epoch_;
}

bool TrainStep::EpochIsEnding() const {
  return reader_.position() % batches_per_epoch_ >= batches_per_epoch_ - IterSize();
}

void TrainStep::Save(TrainSnapshot* snapshot) const {
  snapshot->epoch = epoch();
  snapshot->position = reader_.position();
  snapshot->random_step = Program().step();
  snapshot->seed = config_.random_seed;
  snapshot->data = data_->Describe();
  if (!data_fingerprint_) data_fingerprint_ = FingerprintOf(*data_);
  snapshot->data_fingerprint = *data_fingerprint_;
  snapshot->rows = data_->size();
  snapshot->batch_size = config_.batch_size;
  snapshot->shuffle = config_.shuffle;
  snapshot->drop_last = config_.drop_last;
  snapshot->threads = NumThreads();
  snapshot->ranks = ranks_.size();
  snapshot->instructions = InstructionSet();
  snapshot->progress = window_.Save();
  snapshot->carried = carry_.Save();
}

void TrainStep::Load(const TrainSnapshot& snapshot) {
  reader_.Seek(snapshot.position);
  carry_.Load(snapshot.carried);
  LoadSums(snapshot);
}

std::string TrainStep::LoadWhatFits(const TrainSnapshot& then) {
  LoadSums(then);
  try {
    carry_.Load(then.carried);
  } catch (const Error&) {
    carry_.Reset();
  }
  if (then.rows == data_->size() && then.batch_size == config_.batch_size &&
      then.drop_last == config_.drop_last) {
    reader_.Seek(then.position);
    return "";
  }
  reader_.Seek(then.epoch * batches_per_epoch_);
  return fmt::format("epoch {} starts again", then.epoch + 1);
}

void TrainStep::LoadSums(const TrainSnapshot& snapshot) {
  Program().SetStep(snapshot.random_step);
  if (!ranks_.first()) return;  // rank 0 has the sums of all ranks
  try {
    window_.Load(snapshot.progress);
  } catch (const Error&) {  // other metrics: they start from zero
    window_.Clear();
  }
}

void CheckStreams(const JobConfig& config, const DataSource& data, int64_t batch_size) {
  if (config.carry.empty() || data.streams() == batch_size) return;
  ThrowInvalid(fmt::format(
      "{}: states can only be carried through a text: the batches of {} do not continue each "
      "other",
      config.Place("carry[0]"), data.Describe()));
}

}  // namespace coracle::inline internal
