// Opens the data of a job.

#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/train/data/csv_columns.h>
#include <coracle/train/job/channel_order.h>
#include <coracle/train/job/job.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

namespace coracle {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// A test text uses the vocabulary of the training text.
TextOptions WithPaths(const JobConfig& config, TextOptions text) {
  const auto* train = std::get_if<TextOptions>(&config.train.source);
  if (text.vocabulary.empty() && train) {
    text.vocabulary = train->vocabulary;
    text.vocabulary_text = train->file;
  }
  for (std::string* path : {&text.file, &text.vocabulary, &text.vocabulary_text})
    if (!path->empty()) *path = config.DataPath(*path);
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

// Tests use the centre of each image, without random changes.
DataSourcePtr Transform(const JobConfig& config, TransformOptions transform, ChannelOrder order,
                        DataSourcePtr source, bool test) {
  if (!test) WarnOfWholeCrop(config, transform, *source);
  if (!transform.mean_file.empty()) transform.mean_file = config.DataPath(transform.mean_file);
  transform.random_crop = !test;
  transform.mirror &= !test;
  transform.seed = config.random_seed;
  transform.channel_order = order;
  return MakeTransformed(std::move(source), transform);
}

// The rows of a file that belong to the data, by their numbers in the file.
RowChoice RowsOf(const DataConfig& data, bool test) {
  return [data, test](int64_t size) {
    std::vector<int64_t> rows(static_cast<size_t>(size));
    std::iota(rows.begin(), rows.end(), int64_t{0});
    if (data.split) rows = RowsOfRandomPart(size, data.split->holdout, data.split->seed, test);
    const auto count = static_cast<int64_t>(rows.size());
    const int64_t first = std::min(data.first, count);
    const int64_t limit = data.limit == 0 ? count - first : std::min(data.limit, count - first);
    return std::vector<int64_t>(rows.begin() + first, rows.begin() + first + limit);
  };
}

// Whether tests need numbers that are computed from the training data.
bool NeedsFit(const JobConfig& config, const DataConfig& test) {
  if (test.balance == ClassBalance::kWeights) return true;
  if (config.train.mixup && config.train.mixup->classes == 0) return true;
  if (test.source.index() != config.train.source.index()) return false;
  if (const auto* pictures = std::get_if<PictureOptions>(&config.train.source))
    return pictures->standardize || (pictures->classes.empty() && pictures->list.empty());
  const auto* csv = std::get_if<CsvOptions>(&config.train.source);
  if (!csv) return false;
  bool needs = csv->standardize || csv->standardize_label;
  for (const CsvColumn& column : csv->columns)
    needs |= column.text() && column.text()->vocabulary.empty() && !column.text()->list;
  return needs;
}

[[noreturn]] void ThrowNotComputed(const std::string& what) {
  ThrowInvalid(what + " is computed from the training data: set it under train, with this source");
}

// Gives a column of text of tests the vocabulary of the training data.
void SetList(const std::vector<CsvColumn>& fitted, CsvColumn* column) {
  std::optional<TextColumnOptions>& text = column->words ? column->words : column->characters;
  if (!text || text->list || !text->vocabulary.empty()) return;
  for (const CsvColumn& other : fitted)
    if (other.name == column->name && other.text()) text->list = other.text()->list;
  if (!text->list) ThrowNotComputed("the vocabulary of column " + Quote(column->name));
}

// Gives tests what was computed from the training data.
CsvOptions WithFitted(CsvOptions csv, const JobConfig& config, const CsvOptions* fitted) {
  const auto* train = std::get_if<CsvOptions>(&config.train.source);
  const bool numbers = csv.mean == 0 && csv.scale == 1;  // none are given
  if (csv.standardize && !(train && train->standardize)) ThrowNotComputed("standardize");
  if (csv.standardize_label && !(train && train->standardize_label))
    ThrowNotComputed("standardize_label");
  const std::vector<CsvColumn> none, &columns = fitted ? fitted->columns : none;
  for (CsvColumn& column : csv.columns) SetList(columns, &column);
  csv.standardize = csv.standardize_label = false;
  if (!fitted) return csv;
  if (train->standardize_label && csv.label_mean == 0 && csv.label_scale == 1) {
    csv.label_mean = fitted->label_mean;
    csv.label_scale = fitted->label_scale;
  }
  if (!train->standardize || !numbers) return csv;
  for (const CsvColumn& other : columns) {
    if (!other.mean || other.text() || !other.categories.empty() || !other.ids.empty()) continue;
    if (!other.sequence.empty()) continue;
    const auto own = std::find_if(csv.columns.begin(), csv.columns.end(),
                                  [&](const CsvColumn& c) { return c.name == other.name; });
    const bool skipped = std::find(csv.skip.begin(), csv.skip.end(), other.name) != csv.skip.end();
    if (own == csv.columns.end() && !skipped) {
      csv.columns.push_back({.name = other.name, .mean = other.mean, .scale = other.scale});
    } else if (own != csv.columns.end() && !own->mean && !own->scale && own->categories.empty()) {
      own->mean = other.mean;
      own->scale = other.scale;
    }
  }
  return csv;
}

// Throws if the test has the words of the training data in another order, in which they would get
// other numbers, or feed other inputs.
void RequireSameOrder(const std::string& what, const std::vector<std::string>& train,
                      const std::vector<std::string>& test) {
  if (train == test || !std::is_permutation(train.begin(), train.end(), test.begin(), test.end()))
    return;
  ThrowInvalid(fmt::format("{} must have the order of the training data: {}, not {}", what,
                           Join(train, ", "), Join(test, ", ")));
}

// The names of the columns of "data", as the file has them; none without a header.
std::vector<std::string> NamesOfData(const CsvOptions& csv) {
  std::error_code ignored;
  if (!csv.header || !std::filesystem::is_regular_file(csv.file, ignored)) return {};
  std::vector<std::string> names, used;
  for (const CsvCell& cell : ReadFirstRow(csv)) names.push_back(cell.text);
  const CsvLayout layout = LayoutOf(csv, names, names.size());
  for (size_t i = 0; i < names.size(); ++i)
    if (layout.used[i]) used.push_back(names[i]);
  return used;
}

void RequireOrderOfTrain(const JobConfig& config, const CsvOptions& test) {
  const auto* given = std::get_if<CsvOptions>(&config.train.source);
  if (!given) return;
  CsvOptions train = *given;
  train.file = config.DataPath(train.file);
  RequireSameOrder(test.file + ": class", train.classes, test.classes);
  for (const CsvColumn& column : train.columns)
    for (const CsvColumn& own : test.columns)
      if (own.name == column.name)
        RequireSameOrder(fmt::format("{}: category of column {}", test.file, Quote(own.name)),
                         column.categories, own.categories);
  if (train.file != test.file)
    RequireSameOrder(test.file + ": the columns", NamesOfData(train), NamesOfData(test));
}

PictureOptions WithFitted(PictureOptions pictures, const JobConfig& config,
                          const PictureOptions* fitted) {
  const auto* train = std::get_if<PictureOptions>(&config.train.source);
  if (pictures.standardize && !(train && train->standardize)) ThrowNotComputed("standardize");
  pictures.standardize = false;
  if (!train) return pictures;
  if (pictures.channels == 3 && pictures.channel_order != train->channel_order)
    ThrowInvalid("test pictures: channel_order must be the one of the training data");
  if (pictures.classes.empty()) pictures.classes = fitted ? fitted->classes : train->classes;
  if (fitted && train->standardize && pictures.mean.empty() && pictures.scale.empty()) {
    pictures.mean = fitted->mean;
    pictures.scale = fitted->scale;
  }
  return pictures;
}

// Data to open, with what was computed from the training data for tests.
struct DataToOpen {
  const DataConfig& data;
  bool test = false;
  int64_t streams = 0;
  std::shared_ptr<const FittedOptions> fitted = nullptr;
};

void SetPaths(const JobConfig& config, CsvColumn* column) {
  for (auto* text : {&column->words, &column->characters, &column->byte_pairs}) {
    if (!*text) continue;
    for (std::string* file : {&(*text)->vocabulary, &(*text)->merges})
      if (!file->empty()) *file = config.DataPath(*file);
  }
}

DataSourcePtr OpenSource(const JobConfig& config, const DataToOpen& open) {
  const bool test = open.test;
  const FittedOptions* fitted = open.fitted.get();
  const RowChoice rows = test ? RowChoice() : RowsOf(open.data, test);
  const auto make = Overloaded{
      [](std::monostate) { return DataSourcePtr(); },
      [test](const DigitsOptions& digits) {
        return MakeDigits(digits, test ? DigitSplit::kTest : DigitSplit::kTrain);
      },
      [&config](IdxOptions idx) {
        idx.images = config.DataPath(idx.images);
        idx.labels = config.DataPath(idx.labels);
        return MakeIdxSource(idx);
      },
      [&](CsvOptions csv) {
        if (test)
          csv = WithFitted(std::move(csv), config, fitted && fitted->csv ? &*fitted->csv : nullptr);
        csv.file = config.DataPath(csv.file);
        for (CsvColumn& column : csv.columns) SetPaths(config, &column);
        if (test) RequireOrderOfTrain(config, csv);
        return MakeCsvSource(csv, rows);
      },
      [&config](NpzOptions npz) {
        npz.file = config.DataPath(npz.file);
        return MakeNpzSource(npz);
      },
      [&config](DatumOptions database) {
        database.file = config.DataPath(database.file);
        return MakeDatumSource(database);
      },
      [&](PictureOptions pictures) {
        if (test)
          pictures = WithFitted(std::move(pictures), config,
                                fitted && fitted->pictures ? &*fitted->pictures : nullptr);
        for (std::string* path : {&pictures.directory, &pictures.list})
          if (!path->empty()) *path = config.DataPath(*path);
        return MakePictureSource(pictures, rows);
      },
      [&](const TextOptions& text) -> DataSourcePtr {
        return MakeTextSource(WithPaths(config, text), test ? TextPart::kTest : TextPart::kTrain,
                              open.streams);
      },
  };
  return std::visit(make, open.data.source);
}

DataSourcePtr Balance(const JobConfig& config, const DataToOpen& open, DataSourcePtr source) {
  const DataConfig& data = open.data;
  if (!data.class_weight.empty()) return MakeWeighted(std::move(source), data.class_weight);
  if (data.balance == ClassBalance::kSampling && !open.test)
    return MakeBalanced(std::move(source), config.random_seed);
  if (data.balance != ClassBalance::kWeights) return source;
  if (open.test && (!open.fitted || open.fitted->class_weight.empty()))
    ThrowNotComputed("balance: WEIGHTS");
  std::vector<float> weights = open.test ? open.fitted->class_weight : BalancedWeights(*source);
  return MakeWeighted(std::move(source), std::move(weights));
}

// Tests get the classes of the training data, and no mixtures.
DataSourcePtr Mix(const JobConfig& config, const DataToOpen& open, DataSourcePtr source) {
  if (open.test && open.data.mixup)
    ThrowInvalid("mixup is for training data; tests get the column soft_label by themselves");
  if (!config.train.mixup) return source;
  MixupOptions mixup = *config.train.mixup;
  mixup.seed = config.random_seed;
  mixup.mixes = !open.test;
  if (open.test && open.fitted) mixup.classes = open.fitted->soft_classes;
  return MakeMixed(std::move(source), mixup);
}

// `where` is the place of the data in the job text.
DataSourcePtr Open(const JobConfig& config, const DataToOpen& open, const std::string& where,
                   const std::string& part) {
  const DataConfig& data = open.data;
  try {
    DataSourcePtr source = data.custom ? data.custom : OpenSource(config, open);
    if (!source) return source;
    if (data.split)
      source = MakeRandomPart(std::move(source), data.split->holdout, data.split->seed, open.test);
    source = MakeSubset(std::move(source), data.first, data.limit);
    source = Balance(config, open, std::move(source));
    if (data.transform)
      source =
          Transform(config, *data.transform, ChannelOrderOf(data), std::move(source), open.test);
    return Mix(config, open, std::move(source));
  } catch (const Error& e) {
    const Error located = e.WithPrefix(fmt::format("{}: {}", where, part));
    if (e.code() != ErrorCode::kNotFound || !config.data_dir.empty()) throw located;
    throw located.WithDetail(
        "--data_dir=DIR names the directory of data files; default: the job's");
  }
}

}  // namespace

DataSourcePtr OpenTrainData(const JobConfig& config) {
  const TraceSpan span("data", "open data");
  if (config.train.like_train)
    ThrowInvalid(config.Place("train.like_train") + ": like_train is for test data, not for train");
  return Open(config, {config.train, false, config.batch_size}, config.Place("train"), "train");
}

DataSourcePtr OpenTestData(const JobConfig& config, const TestSetConfig& set,
                           const DataSource* train) {
  DataToOpen open = {set.data, true, set.batch_size};
  if (NeedsFit(config, set.data))
    open.fitted = train ? train->fitted() : OpenTrainData(config)->fitted();
  DataSourcePtr data = Open(config, open, config.Place(set.where), set.name);
  if (data) return data;
  ThrowInvalid(
      fmt::format("{}: the test set {} has no data", config.Place(set.where), Quote(set.name)));
}

}  // namespace coracle
