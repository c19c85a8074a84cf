#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/byte_pairs.h>
#include <coracle/train/data/csv_columns.h>
#include <coracle/train/data/text_column.h>
#include <coracle/train/job/channel_order.h>
#include <coracle/train/run/predict/output_meaning.h>
#include <coracle/train/run/predict/preprocess_of_job.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

namespace coracle::inline internal {
namespace {

// The bindings of the deployed inputs that the data feeds.
std::vector<BindConfig> DeployedInputs(const JobConfig& config) {
  std::vector<BindConfig> inputs;
  for (const std::string& name : config.deploy_inputs) {
    const bool carried = std::any_of(config.carry.begin(), config.carry.end(),
                                     [&](const CarryConfig& carry) { return carry.to == name; });
    if (carried) continue;
    BindConfig input{name, name};
    for (const BindConfig& bind : config.bind)
      if (bind.var == name) input.column = bind.column;
    inputs.push_back(input);
  }
  return inputs;
}

// Throws if the header does not tell the column from others: rows of other files are found by it.
void CheckName(const CsvOptions& options, const std::vector<std::string>& names, size_t i) {
  if (!names[i].empty() && std::count(names.begin(), names.end(), names[i]) == 1) return;
  ThrowInvalid(fmt::format(
      "{}: column {} of the header {}; it needs a name of its own", options.file, i,
      names[i].empty() ? "has no name" : "is called " + Quote(names[i]) + " like another"));
}

bool Reads(const std::set<std::string>& columns, const CsvLayout& layout, size_t i) {
  const CsvColumn& column = layout.columns[i];
  if (layout.used[i]) return columns.count("data") > 0;
  if (i == layout.label) return false;
  if (column.text())
    return columns.count(NameOfIds(column)) > 0 || columns.count(NameOfIds(column) + "@LENGTH") > 0;
  return (!column.ids.empty() && columns.count(column.ids) > 0) ||
         (!column.sequence.empty() &&
          (columns.count(column.sequence) > 0 || columns.count(column.sequence + "@LENGTH") > 0));
}

RawCsv RawCsvOf(CsvOptions options, const std::string& path, const std::set<std::string>& columns) {
  options.file = path;
  const std::vector<CsvCell> first = ReadFirstRow(options);
  std::vector<std::string> names;
  for (const CsvCell& cell : first)
    if (options.header) names.push_back(cell.text);
  const CsvLayout layout = LayoutOf(options, names, first.size());
  RawCsv csv;
  csv.header = options.header;
  csv.delimiter = options.delimiter;
  csv.cells = static_cast<int64_t>(first.size());
  csv.label_number = static_cast<int64_t>(layout.label);
  csv.label_kind = options.label_kind;
  csv.classes = options.classes;
  if (options.header) csv.label = names[layout.label];
  if (columns.count("data") > 0) csv.shape = options.shape;
  for (size_t i = 0; i < first.size(); ++i) {
    if (!Reads(columns, layout, i)) continue;
    if (options.header) CheckName(options, names, i);
    RawColumn column{layout.columns[i], static_cast<int64_t>(i)};
    if (column.column.text()) {
      if (const auto& pairs = column.column.byte_pairs)
        column.words = pairs->pairs->tokens(), column.merges = pairs->pairs->merges();
      else
        column.words = column.column.text()->list->words();
      if (column.column.sequence.empty()) column.column.ids = NameOfIds(layout.columns[i]);
    }
    column.column.name = options.header ? names[i] : "";
    const bool words = !column.column.categories.empty();
    if (words || !column.column.sequence.empty() || column.column.text())
      column.column.fill = column.column.mean = column.column.scale = std::nullopt;
    csv.columns.push_back(std::move(column));
  }
  return csv;
}

// The dims of an idx file of bytes, plain or gzip; empty if its elements are not bytes.
Shape IdxShape(const std::string& path) {
  const std::string other = path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path + ".gz";
  gzFile file = gzopen((FileExists(path) ? path : other).c_str(), "rb");
  if (!file) return {};
  std::array<unsigned char, 16> head{};
  const int bytes = gzread(file, head.data(), static_cast<unsigned>(head.size()));
  gzclose(file);
  if (bytes != 16 || head[2] != 8 || head[3] != 3) return {};
  Shape shape;
  for (size_t at = 4; at < 16; at += 4) {
    shape.Append(int64_t{head[at]} << 24 | int64_t{head[at + 1]} << 16 |
                 int64_t{head[at + 2]} << 8 | int64_t{head[at + 3]});
  }
  return shape;
}

// The picture before the transform; nullopt if the data does not hold pictures of bytes.
std::optional<RawPicture> WholePicture(const JobConfig& config, const DataSource& data) {
  const auto& source = config.train.source;
  RawPicture picture;
  picture.scale = {1.0F / 255.0F};
  if (const auto* digits = std::get_if<DigitsOptions>(&source)) {
    picture.height = 28;
    picture.width = int64_t{28} * digits->length;
    return picture;
  }
  if (const auto* idx = std::get_if<IdxOptions>(&source)) {
    const Shape shape = IdxShape(config.DataPath(idx->images));
    if (shape.rank() != 3) return std::nullopt;
    picture.height = shape[1], picture.width = shape[2];
    if (idx->mean != 0) picture.mean = {idx->mean};
    if (idx->scale) picture.scale = {*idx->scale};
    return picture;
  }
  if (const auto* files = std::get_if<PictureOptions>(&source)) {
    const auto fitted = data.fitted();
    const PictureOptions& options = fitted && fitted->pictures ? *fitted->pictures : *files;
    picture.channels = options.channels;
    picture.height = options.height, picture.width = options.width;
    picture.mean = options.mean;
    if (!options.scale.empty()) picture.scale = options.scale;
    picture.decode_mb = options.decode_mb;
    return picture;
  }
  if (const auto* datum = std::get_if<DatumOptions>(&source)) {
    DatumOptions options = *datum;
    options.file = config.DataPath(options.file);
    const DataColumn column = MakeDatumSource(options)->columns()[0];
    picture.column = column.name;
    picture.channels = column.shape[0];
    picture.height = column.shape[1], picture.width = column.shape[2];
    picture.scale = {};
    return picture;
  }
  return std::nullopt;
}

// The mean image as the transform subtracts it: what it makes of zeros, with the other sign.
std::vector<float> MeanImage(const RawPicture& picture, const std::string& path) {
  const Shape shape = {1, picture.channels, picture.height, picture.width};
  TransformOptions options;
  options.mean_file = path;
  options.scale = -1;
  const DataSourcePtr source =
      MakeTransformed(MakeMemorySource({{"image",
                                         Tensor::Zeros(DType::kFloat32, shape),
                                         {picture.channels, picture.height, picture.width}}},
                                       "zeros"),
                      options);
  std::vector<Tensor> mean = {Tensor(DType::kFloat32, shape)};
  source->Get(std::vector<int64_t>{0}, mean);
  return {mean[0].data<float>(), mean[0].data<float>() + mean[0].numel()};
}

std::optional<RawPicture> RawPictureOf(const JobConfig& config, const DataSource& data) {
  std::optional<RawPicture> picture = WholePicture(config, data);
  if (picture && picture->channels == 3) picture->channel_order = ChannelOrderOf(config.train);
  if (!picture || !config.train.transform) return picture;
  const TransformOptions& given = *config.train.transform;
  TransformOptions& transform = picture->transform.emplace();
  transform.scale = given.scale;
  transform.mean_value = given.mean_value;
  transform.crop_size = given.crop_size;
  if (given.crop_size > std::min(picture->height, picture->width))
    ThrowInvalid(config.Place("train.transform.crop_size") + ": a crop larger than the pictures");
  if (!given.mean_file.empty())
    picture->mean_image = MeanImage(*picture, config.DataPath(given.mean_file));
  return picture;
}

std::optional<RawText> RawTextOf(const JobConfig& config, const DataSource& data) {
  const Vocabulary* vocabulary = data.vocabulary();
  if (!std::holds_alternative<TextOptions>(config.train.source) || !vocabulary) return std::nullopt;
  RawText text;
  for (int64_t i = 0; i < vocabulary->size(); ++i)
    text.characters.push_back(vocabulary->Character(i));
  return text;
}

// The columns of arrays that the inputs read. Throws for elements that rows cannot have.
std::vector<RawArray> RawArraysOf(const DataSource& data, const std::set<std::string>& columns) {
  std::vector<RawArray> arrays;
  for (const std::string& name : columns) {
    const bool length = name.ends_with("@LENGTH");  // the source makes it of the sequences
    const int index = data.FindColumn(length ? name.substr(0, name.size() - 7) : name);
    if (index < 0) return {};
    const DataColumn& column = data.columns()[static_cast<size_t>(index)];
    const bool there = std::any_of(arrays.begin(), arrays.end(), [&](const RawArray& array) {
      return array.column == column.name;
    });
    if (there) continue;
    const DType dtype = column.dtype;
    if (dtype != DType::kFloat32 && dtype != DType::kFloat64 && dtype != DType::kInt32 &&
        dtype != DType::kInt64 && dtype != DType::kUInt8) {
      ThrowInvalid(
          fmt::format("the array {} is {}; rows can be float32, float64, int32, int64 or "
                      "uint8",
                      Quote(name), ToString(dtype)));
    }
    RawArray array{column.name, dtype, {}, column.sequences};
    for (const int64_t dim : column.shape) array.shape.push_back(dim);
    arrays.push_back(std::move(array));
  }
  return arrays;
}

// Whether tests see other values than without the transform.
bool ChangesTests(const TransformOptions& transform) {
  return transform.scale != 1 || transform.crop_size > 0 || !transform.mean_value.empty() ||
         !transform.mean_file.empty();
}

// Sets the source of `result`. Returns false if the inputs are not made of raw data.
bool SetSource(const JobConfig& config, const DataSource& data, PreprocessConfig* result) {
  std::set<std::string> columns, made;
  for (const BindConfig& input : result->inputs) columns.insert(input.column);
  if (const auto* csv = std::get_if<CsvOptions>(&config.train.source)) {
    const auto fitted = data.fitted();
    const CsvOptions& options = fitted && fitted->csv ? *fitted->csv : *csv;
    if (config.train.transform && ChangesTests(*config.train.transform)) {
      ThrowInvalid(config.Place("train.transform") +
                   ": for csv data, give mean and scale in csv instead");
    }
    result->csv = RawCsvOf(options, config.DataPath(csv->file), columns);
    for (const RawColumn& raw : result->csv->columns) {
      const CsvColumn& column = raw.column;
      const std::string own = column.text()         ? NameOfIds(column)
                              : !column.ids.empty() ? column.ids
                                                    : column.sequence;
      made.insert(own.empty() ? "data" : own);
      if (column.text() || !column.sequence.empty()) made.insert(own + "@LENGTH");
    }
  } else if ((result->picture = RawPictureOf(config, data))) {
    made.insert(result->picture->column);
  } else if ((result->text = RawTextOf(config, data))) {
    made.insert(result->text->column);
  } else if (std::holds_alternative<NpzOptions>(config.train.source)) {
    if (config.train.transform && ChangesTests(*config.train.transform)) {
      ThrowInvalid(config.Place("train.transform") +
                   ": arrays are fed as they are, without a transform");
    }
    result->arrays = RawArraysOf(data, columns);
    return !result->arrays.empty();
  }
  return std::includes(made.begin(), made.end(), columns.begin(), columns.end());
}

}  // namespace

std::optional<PreprocessConfig> PreprocessOf(const JobConfig& config, const Programs& programs,
                                             const DataSource& data, const Scope& scope) {
  PreprocessConfig result;
  result.inputs = DeployedInputs(config);
  if (config.train.custom || result.inputs.empty()) return std::nullopt;
  if (!SetSource(config, data, &result)) return std::nullopt;
  for (const CarryConfig& carry : config.carry) result.zeros.push_back(carry.to);
  for (const std::string& name : config.deploy_outputs) {
    const bool carried = std::any_of(config.carry.begin(), config.carry.end(),
                                     [&](const CarryConfig& carry) { return carry.from == name; });
    if (!carried) result.outputs.push_back(MeaningOf(name, config, programs, data, scope));
  }
  if (result.outputs.empty()) return std::nullopt;
  return result;
}

}  // namespace coracle::inline internal
