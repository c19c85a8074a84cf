#include <coracle/framework/base/text.h>
#include <coracle/train/run/evaluation/test_sets.h>
#include <coracle/train/run/ranks/same_data.h>
#include <coracle/train/run/train_step.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

std::vector<std::string> ValueNames(const JobConfig& config, const Net& net) {
  std::vector<std::string> names;
  if (net.has_loss) names.push_back(config.loss_name);
  for (const MetricConfig& metric : NumberMetrics(net.metrics)) names.push_back(metric.name);
  return names;
}

std::unique_ptr<Evaluator> MakeEvaluator(const JobConfig& config, const TestSetConfig& set,
                                         const DataSource& train, const Net& net,
                                         const Executor& executor, const Ranks& ranks) {
  const std::string place = config.Place(set.where);
  DataSourcePtr data = OpenTestData(config, set, &train);
  RequireSameData(ranks, data, "test data " + Quote(set.name));
  CheckStreams(config, *data, set.batch_size);
  MetricSums sums(net.has_loss ? net.Loss(config) : "", net.metrics);
  if (sums.fetches().empty()) {
    ThrowInvalid(fmt::format("{}: there is neither loss nor metric to evaluate on {}", place,
                             Quote(set.name)));
  }
  StateCarry carry(net.program, config.carry, set.batch_size, config.source, ranks);
  std::vector<std::string> fetches = sums.fetches();
  fetches.insert(fetches.end(), carry.from().begin(), carry.from().end());
  Feeder feeder(net.program, net.columns, *data, config.bind, place, ranks);
  std::vector<std::string> feeds = net.Feeds(config);
  const VarDesc* share = net.program.Root().FindVar(kRankShare);
  if (share) feeds.emplace_back(kRankShare);
  PreparedProgram program = executor.Prepare(net.program, feeds, fetches);
  program.SetCommunicator(ranks.communicator());
  auto evaluator = std::make_unique<Evaluator>(
      std::move(program), std::move(feeder), std::move(carry), std::move(sums), data,
      BatchOptions{.batch_size = set.batch_size,
                   .prefetch = config.prefetch,
                   .rank = ranks.rank(),
                   .ranks = ranks.size()},
      set.iterations, ranks, share ? std::optional(share->dtype()) : std::nullopt);
  if (config.quantize) {
    PreparedProgram in_float = executor.Prepare(
        ProgramOfPhase(net.program, QuantizePhase::kObserve, executor.ops()), feeds, fetches);
    in_float.SetCommunicator(ranks.communicator());
    evaluator->SetFloatProgram(std::move(in_float));
  }
  return evaluator;
}

}  // namespace

TestSets::TestSets(const JobConfig& config, const DataSource& train, const std::vector<Net>& nets,
                   const Executor& executor, const Ranks& ranks) {
  const std::vector<TestSetConfig> sets = config.TestSets();
  for (size_t i = 0; i < sets.size(); ++i) {
    sets_.push_back({sets[i].name, config.Place(sets[i].where), ValueNames(config, nets[i]),
                     MakeEvaluator(config, sets[i], train, nets[i], executor, ranks)});
  }
}

std::vector<std::string> TestSets::names() const {
  std::vector<std::string> names;
  names.reserve(sets_.size());
  for (const Set& set : sets_) names.push_back(set.name);
  return names;
}

std::vector<std::vector<std::string>> TestSets::value_names() const {
  std::vector<std::vector<std::string>> names;
  names.reserve(sets_.size());
  for (const Set& set : sets_) names.push_back(set.value_names);
  return names;
}

void TestSets::UseFloat(bool use) {
  for (const Set& set : sets_) set.evaluator->UseFloat(use);
}

void TestSets::Try(Scope& scope) {
  for (const Set& set : sets_) {
    try {
      set.evaluator->Try(scope);
    } catch (const Error& e) {
      // A request to stop takes effect at the first step.
      if (e.code() != ErrorCode::kCancelled) throw e.WithPrefix(set.place);
    }
  }
}

bool TestSets::Run(Scope& scope, const std::function<bool()>& stop, const ReportSet& report) {
  for (const Set& set : sets_) {
    if (!set.evaluator->Run(scope, stop)) return false;
    const std::vector<double> numbers = set.evaluator->Values();
    std::vector<NamedValue> values;
    for (size_t i = 0; i < numbers.size(); ++i) values.push_back({set.value_names[i], numbers[i]});
    report({set.name, set.evaluator->rows(), std::move(values), set.evaluator->Confusions()});
  }
  return true;
}

const EvaluationRecord* FindEvaluation(const std::vector<EvaluationRecord>& records,
                                       const std::string& set) {
  const auto found = std::find_if(records.begin(), records.end(),
                                  [&set](const auto& record) { return record.set == set; });
  return found == records.end() ? nullptr : &*found;
}

void AddRecord(EvaluationRecord record, std::vector<EvaluationRecord>* records) {
  for (EvaluationRecord& old : *records) {
    if (old.set != record.set) continue;
    old = std::move(record);
    return;
  }
  records->push_back(std::move(record));
}

}  // namespace coracle::inline internal
