#include <coracle/framework/base/text.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_fields.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

namespace coracle {
namespace {

namespace fs = std::filesystem;

// The ranges of the job's own fields; texts are also checked when they are read.
void CheckRanges(const JobConfig& config) {
  for (const FieldSpec& field : JobFields().fields()) {
    const std::string wrong = FieldTable::OutOfRange(field, &config);
    if (!wrong.empty())
      ThrowInvalid(fmt::format("{}: {} {}", config.Place(field.name), field.name, wrong));
  }
}

// Logs identify test sets and metrics by their names, so these must differ.
void CheckNames(const JobConfig& config) {
  std::set<std::string> names;
  const std::vector<TestSetConfig> sets = config.TestSets();
  for (const TestSetConfig& set : sets) {
    if (names.insert(set.name).second) continue;
    ThrowInvalid(
        fmt::format("{}: two test sets are called {}", config.Place(set.where), Quote(set.name)));
  }
  names = {config.loss_name};
  for (size_t i = 0; i < config.metrics.size(); ++i) {
    const MetricConfig& metric = config.metrics[i];
    const std::string where = config.Place(fmt::format("metric[{}]", i));
    const bool compares = ComparesScores(metric.kind) || ComparesNumbers(metric.kind);
    if (compares == metric.label.empty()) {
      ThrowInvalid(fmt::format("{}: metric {} {} a label", where, Quote(metric.name),
                               compares ? "needs" : "takes no"));
    }
    if (!names.insert(metric.name).second)
      ThrowInvalid(fmt::format("{}: two values are shown as {}", where, Quote(metric.name)));
  }
  const bool watches = config.best || config.early_stop;
  if (watches && sets.empty()) {
    ThrowInvalid(fmt::format("{}: there is nothing to watch without test data",
                             config.Place(config.best ? "best" : "early_stop")));
  }
}

// The file of the data, spelled as in the job; "" if the rows do not come from a file.
std::string FileOf(const DataConfig& data) {
  if (data.custom) return "";
  if (const auto* idx = std::get_if<IdxOptions>(&data.source)) return idx->images;
  if (const auto* csv = std::get_if<CsvOptions>(&data.source)) return csv->file;
  if (const auto* npz = std::get_if<NpzOptions>(&data.source)) return npz->file;
  if (const auto* text = std::get_if<TextOptions>(&data.source)) return text->file;
  if (const auto* database = std::get_if<DatumOptions>(&data.source)) return database->file;
  if (const auto* pictures = std::get_if<PictureOptions>(&data.source))
    return pictures->list.empty() ? pictures->directory : pictures->list;
  return "";
}

// The canonical path of the file, with links resolved. For an idx file, "x" and "x.gz" count as the
// same file.
std::string FileItself(const JobConfig& config, const DataConfig& data) {
  std::string path = FileOf(data);
  if (path.empty()) return "";
  path = config.DataPath(path);
  if (std::holds_alternative<IdxOptions>(data.source) && path.ends_with(".gz"))
    path.resize(path.size() - 3);
  std::error_code error;
  const std::string itself = fs::weakly_canonical(path, error).string();
  return error ? path : itself;
}

// Whether all test rows are rows that training leaves out.
bool SplitAlike(const DataConfig& train, const DataConfig& test) {
  const auto *of_train = std::get_if<TextOptions>(&train.source),
             *of_test = std::get_if<TextOptions>(&test.source);
  if (!of_train || !of_test) return train.split == test.split;
  return of_test->holdout <= of_train->holdout;  // both are at the end of the text
}

bool Splits(const DataConfig& data) {
  const auto* text = std::get_if<TextOptions>(&data.source);
  return data.split || (text && text->holdout > 0);
}

// Two splits of one file must be the same. Otherwise training would use test rows.
void CheckSplits(const JobConfig& config) {
  const std::string file = FileItself(config, config.train);
  if (file.empty()) return;
  for (const TestSetConfig& set : config.TestSets()) {
    const bool splits = Splits(config.train) || Splits(set.data);
    if (!splits || FileItself(config, set.data) != file || SplitAlike(config.train, set.data))
      continue;
    ThrowInvalid(fmt::format(
        "{}: {} and train read {} with different splits: rows would be trained on and tested on; "
        "give both the same holdout and seed",
        config.Place(set.where), set.name, Quote(FileOf(set.data), 300)));
  }
}

}  // namespace

std::string DefaultOutputDirectory(const JobConfig& config) {
  const std::vector<std::string> parts = Split(config.name, '/');
  const bool leads_out = config.name.empty() || config.name[0] == '/' || config.name == "." ||
                         std::find(parts.begin(), parts.end(), "..") != parts.end();
  if (leads_out) {
    ThrowInvalid(
        fmt::format("{}: the name {} makes no directory in output; give another, or an "
                    "output_dir",
                    config.Place("name"), Quote(config.name, 300)));
  }
  return (fs::path("output") / config.name).string();
}

std::string JobConfig::SnapshotDirectory() const {
  if (!snapshot_dir.empty() || output_dir.empty()) return snapshot_dir;
  return (fs::path(output_dir) / "snapshots").string();
}

QuantizePhase QuantizeConfig::PhaseAfter(int64_t steps) const {
  if (steps < start_step) return QuantizePhase::kObserve;
  return freeze_step > 0 && steps >= freeze_step ? QuantizePhase::kFreeze
                                                 : QuantizePhase::kQuantize;
}

const std::string& JobConfig::Place(const std::string& field) const {
  if (const auto found = places.find(field); found != places.end()) return found->second;
  const auto begin = places.find("");
  return begin == places.end() ? source : begin->second;
}

std::vector<TestSetConfig> JobConfig::TestSets() const {
  std::vector<TestSetConfig> sets;
  if (!test.empty()) sets.push_back({"test", test, 0, test_iterations, {}, "test"});
  sets.insert(sets.end(), test_sets.begin(), test_sets.end());
  for (size_t i = 0; i < test_sets.size(); ++i)
    sets[sets.size() - test_sets.size() + i].where = fmt::format("test_set[{}]", i);
  for (TestSetConfig& set : sets)
    if (set.batch_size == 0) set.batch_size = test_batch_size ? test_batch_size : batch_size;
  return sets;
}

std::string JobConfig::DataPath(const std::string& file) const {
  if (fs::path(file).is_absolute()) return file;
  const fs::path base = data_dir.empty() ? directory : data_dir;
  return (base / file).lexically_normal().string();
}

std::string JobConfig::FilePath(const std::string& file) const {
  if (fs::path(file).is_absolute()) return file;
  return (fs::path(directory) / file).lexically_normal().string();
}

void CheckJob(const JobConfig& config) {
  const std::string& source = config.Place("");
  if (config.model.empty() && config.model_text.empty())
    ThrowInvalid(source + ": the job has no model; give model or model_text");
  if (config.train.empty()) ThrowInvalid(source + ": the job has no training data; give train");
  if (config.loss.empty()) ThrowInvalid(config.Place("loss") + ": loss must name a variable");
  if (config.max_iter == 0 && config.epochs == 0)
    ThrowInvalid(source + ": the job has no end; give max_iter or epochs");
  CheckRanges(config);
  if (config.deploy_inputs.empty() != config.deploy_outputs.empty())
    ThrowInvalid(config.Place("deploy") + ": deploy needs both input and output");
  if (!config.carry.empty() && config.shuffle)
    ThrowInvalid(config.Place("shuffle") + ": shuffle must be false where states are carried");
  CheckNames(config);
  CheckSplits(config);
}

}  // namespace coracle
