#include <coracle/train/job/job_parts.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

using Node = JobNode;

IdxOptions ToIdx(const proto::IdxConfig& idx) {
  IdxOptions options;
  options.images = idx.images();
  options.labels = idx.labels();
  options.mean = idx.mean();
  if (idx.has_scale()) options.scale = idx.scale();
  return options;
}

CsvColumn ToCsvColumn(const proto::CsvColumnConfig& column, const Node& at) {
  CsvColumn options;
  options.name = column.name();
  if (column.has_fill()) options.fill = column.fill();
  if (column.has_mean()) options.mean = column.mean();
  if (column.has_scale()) options.scale = column.scale();
  options.categories.assign(column.category().begin(), column.category().end());
  options.ids = column.ids();
  options.sequence = column.sequence();
  const bool words = !options.categories.empty();
  if (column.has_sequence() && options.sequence.empty())
    at.Fail("sequence", "must name the new column");
  if (column.has_sequence() && column.has_ids()) at.Fail("sequence", "and ids do not go together");
  for (const char* field : {"fill", "mean", "scale"})
    if (column.has_sequence() && at.Has(field)) at.Fail(field, "does not apply to sequences");
  if (column.has_ids() && !words) at.Fail("ids", "needs the words: category: \"...\"");
  if (column.has_ids() && options.ids.empty()) at.Fail("ids", "must name the new column");
  for (const char* field : {"fill", "mean", "scale"})
    if (words && at.Has(field)) at.Fail(field, "does not apply to words, which category lists");
  return options;
}

CsvOptions ToCsv(const proto::CsvConfig& csv, const Node& at) {
  CsvOptions options;
  options.file = csv.file();
  options.header = csv.header();
  std::string delimiter = csv.delimiter();
  if (delimiter.size() != 1 || delimiter == "\"" || delimiter == "\n" || delimiter == "\r")
    at.Fail("delimiter", "must be one character, neither a quote nor a line end");
  options.delimiter = delimiter[0];
  options.label = csv.label();
  options.label_kind = static_cast<CsvLabel>(csv.label_kind());
  options.classes.assign(csv.class_().begin(), csv.class_().end());
  if (options.label_kind == CsvLabel::kClass && options.classes.empty())
    at.Fail("label_kind", "CLASS needs the names of the classes: class: \"...\"");
  if (options.label_kind != CsvLabel::kClass && !options.classes.empty())
    at.Fail("class", "names classes, which only label_kind: CLASS has", 0);
  options.skip.assign(csv.skip().begin(), csv.skip().end());
  if (csv.has_fill()) options.fill = csv.fill();
  options.mean = csv.mean();
  options.scale = csv.scale();
  for (int i = 0; i < csv.column_size(); ++i) {
    options.columns.push_back(ToCsvColumn(csv.column(i), at.Child("column", i)));
  }
  options.shape.assign(csv.shape().begin(), csv.shape().end());
  if (options.shape.size() >= static_cast<size_t>(Shape::kMaxRank))
    at.Fail("shape", fmt::format("may have at most {} dimensions", Shape::kMaxRank - 1));
  for (int i = 0; i < csv.shape_size(); ++i)
    if (csv.shape(i) < 1) at.Fail("shape", "must have positive dimensions", i);
  return options;
}

NpzOptions ToNpz(const proto::NpzConfig& npz) {
  NpzOptions options;
  options.file = npz.file();
  for (const auto& column : npz.column()) options.columns.push_back({column.key(), column.name()});
  return options;
}

TransformOptions ToTransform(const proto::TransformConfig& transform, const Node& at) {
  TransformOptions options;
  options.scale = transform.scale();
  options.mean_value.assign(transform.mean_value().begin(), transform.mean_value().end());
  options.mean_file = transform.mean_file();
  options.crop_size = transform.crop_size();
  options.mirror = transform.mirror();
  if (transform.has_mean_file() && transform.mean_value_size() > 0)
    at.Fail("mean_file", "and mean_value do not go together");
  return options;
}

TextOptions ToText(const proto::TextConfig& text) {
  TextOptions options;
  options.file = text.file();
  options.sequence_length = text.sequence_length();
  options.holdout = text.holdout();
  options.vocabulary = text.vocabulary();
  return options;
}

}  // namespace

DigitsOptions ToDigits(const proto::DigitsConfig& digits, const Node& at) {
  DigitsOptions options{digits.count(),
                        digits.seed(),
                        {digits.classes().begin(), digits.classes().end()},
                        digits.length()};
  const int64_t most = 10'000'000 / options.length;
  if (options.count > most)
    at.Fail("count", fmt::format("must be at most {} of that length", most));
  for (int i = 0; i < digits.classes_size(); ++i) {
    const auto end = options.classes.begin() + i;
    if (digits.classes(i) < 0 || digits.classes(i) > 9 ||
        std::find(options.classes.begin(), end, *end) != end)
      at.Fail("classes", fmt::format("must be distinct digits, got {}", digits.classes(i)), i);
  }
  return options;
}

DataConfig ToData(const proto::DataConfig& data, const Node& at, const std::string& parent) {
  DataConfig config;
  switch (data.source_case()) {
    case proto::DataConfig::kDigits:
      config.source = ToDigits(data.digits(), at.Child("digits"));
      break;
    case proto::DataConfig::kIdx:
      config.source = ToIdx(data.idx());
      break;
    case proto::DataConfig::kCsv:
      config.source = ToCsv(data.csv(), at.Child("csv"));
      break;
    case proto::DataConfig::kNpz:
      config.source = ToNpz(data.npz());
      break;
    case proto::DataConfig::kText:
      config.source = ToText(data.text());
      for (const char* field : {"first", "limit", "split"})
        if (at.Has(field)) at.Fail(field, "does not apply to a text; its holdout divides it");
      break;
    case proto::DataConfig::kLmdb:
      config.source = DatumOptions{DatumOptions::Format::kLmdb, data.lmdb().file()};
      break;
    case proto::DataConfig::kLeveldb:
      config.source = DatumOptions{DatumOptions::Format::kLevelDb, data.leveldb().file()};
      break;
    case proto::DataConfig::SOURCE_NOT_SET:
      at.FailHere(parent +
                  " has no data; give it one of digits, idx, csv, npz, text, lmdb, leveldb");
  }
  if (data.has_split()) config.split = SplitConfig{data.split().holdout(), data.split().seed()};
  if (data.has_transform()) config.transform = ToTransform(data.transform(), at.Child("transform"));
  config.first = data.first();
  config.limit = data.limit();
  return config;
}

}  // namespace coracle
