#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
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

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

std::string DataPath(const JobConfig& config, const std::string& file) {
  if (fs::path(file).is_absolute()) return file;
  fs::path base = config.data_dir.empty() ? config.directory : config.data_dir;
  return (base / file).lexically_normal().string();
}

// A test text uses the vocabulary of the training text.
TextOptions WithPaths(const JobConfig& config, TextOptions text) {
  const auto* train = std::get_if<TextOptions>(&config.train.source);
  if (text.vocabulary.empty() && train) {
    text.vocabulary = train->vocabulary;
    text.vocabulary_text = train->file;
  }
  for (std::string* path : {&text.file, &text.vocabulary, &text.vocabulary_text})
    if (!path->empty()) *path = DataPath(config, *path);
  return text;
}

// Warns of a crop_size equal to the size of the images, which does nothing.
void WarnOfWholeCrop(const JobConfig& config, const TransformOptions& transform,
                     const DataSource& source) {
  for (const DataColumn& column : source.columns()) {
    if (column.shape.rank() != 3 || column.sequences) continue;
    if (transform.crop_size == column.shape[1] && transform.crop_size == column.shape[2]) {
      LogMessage(MessageLevel::kWarning,
                 fmt::format("{}: crop_size {} is the size of the images: nothing is cropped",
                             config.Place("train.transform.crop_size"), transform.crop_size));
    }
    return;
  }
}

// Tests use the centre of each image.
DataSourcePtr Transform(const JobConfig& config, TransformOptions transform, DataSourcePtr source,
                        bool test) {
  if (!test) WarnOfWholeCrop(config, transform, *source);
  if (!transform.mean_file.empty()) transform.mean_file = DataPath(config, transform.mean_file);
  transform.random_crop = !test;
  transform.seed = config.random_seed;
  return MakeTransformed(std::move(source), transform);
}

// `where` is the place of the data in the job text.
DataSourcePtr Open(const JobConfig& config, const DataConfig& data, DigitSplit split,
                   int64_t streams, const std::string& where, const std::string& part) {
  const bool test = split == DigitSplit::kTest;
  auto open = Overloaded{
      [](std::monostate) { return DataSourcePtr(); },
      [split](const DigitsOptions& digits) { return MakeDigits(digits, split); },
      [&config](IdxOptions idx) {
        idx.images = DataPath(config, idx.images);
        idx.labels = DataPath(config, idx.labels);
        return MakeIdxSource(idx);
      },
      [&config](CsvOptions csv) {
        csv.file = DataPath(config, csv.file);
        return MakeCsvSource(csv);
      },
      [&config](NpzOptions npz) {
        npz.file = DataPath(config, npz.file);
        return MakeNpzSource(npz);
      },
      [&config](DatumOptions database) {
        database.file = DataPath(config, database.file);
        return MakeDatumSource(database);
      },
      [&](const TextOptions& text) -> DataSourcePtr {
        return MakeTextSource(WithPaths(config, text), test ? TextPart::kTest : TextPart::kTrain,
                              streams);
      },
  };
  try {
    DataSourcePtr source = data.custom ? data.custom : std::visit(open, data.source);
    if (!source) return source;
    if (data.split)
      source = MakeRandomPart(std::move(source), data.split->holdout, data.split->seed, test);
    source = MakeSubset(std::move(source), data.first, data.limit);
    return data.transform ? Transform(config, *data.transform, std::move(source), test) : source;
  } catch (const Error& e) {
    const Error located = e.WithPrefix(fmt::format("{}: {}", where, part));
    if (e.code() != ErrorCode::kNotFound || !config.data_dir.empty()) throw located;
    throw located.WithDetail(
        "--data_dir=DIR names the directory of data files; default: the job's");
  }
}

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
    const bool scores = metric.kind == MetricKind::kAccuracy || metric.kind == MetricKind::kAuc;
    if (scores == metric.label.empty()) {
      ThrowInvalid(fmt::format("{}: metric {} {} a label", where, Quote(metric.name),
                               scores ? "needs" : "takes no"));
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
  return "";
}

// The canonical path of the file, with links resolved. For an idx file, "x" and "x.gz" count as the
// same file.
std::string FileItself(const JobConfig& config, const DataConfig& data) {
  std::string path = FileOf(data);
  if (path.empty()) return "";
  path = DataPath(config, path);
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

DataSourcePtr OpenTrainData(const JobConfig& config) {
  const TraceSpan span("data", "open data");
  return Open(config, config.train, DigitSplit::kTrain, config.batch_size, config.Place("train"),
              "train");
}

DataSourcePtr OpenTestData(const JobConfig& config, const TestSetConfig& set) {
  return Open(config, set.data, DigitSplit::kTest, set.batch_size, config.Place(set.where),
              set.name);
}

}  // namespace coracle
