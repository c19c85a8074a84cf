#include <coracle/framework/base/text.h>
#include <coracle/train/data/csv_columns.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/data/text_column.h>
#include <coracle/train/run/predict/row_decoder.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace coracle::inline internal {
namespace {

DType DTypeOfColumn(const ColumnValues& values) {
  return std::visit(
      [](const auto& v) { return DTypeOf<typename std::decay_t<decltype(v)>::value_type>(); },
      values);
}

size_t SizeOfColumn(const ColumnValues& values) {
  return std::visit([](const auto& v) { return v.size(); }, values);
}

// Joins column `c` of the rows.
Tensor JoinColumn(std::span<const DecodedRow> rows, size_t c, const DataColumn& column) {
  Shape shape;
  std::vector<uint64_t> offsets = {0};
  const auto element = static_cast<uint64_t>(column.sequences ? column.shape.numel() : 1);
  for (const DecodedRow& row : rows)
    offsets.push_back(offsets.back() + SizeOfColumn(row[c]) / std::max(element, uint64_t{1}));
  shape.Append(static_cast<int64_t>(column.sequences ? offsets.back() : rows.size()));
  for (const int64_t dim : column.shape) shape.Append(dim);
  Tensor joined(DTypeOfColumn(rows[0][c]), shape);
  char* to = static_cast<char*>(joined.raw());
  for (const DecodedRow& row : rows) {
    std::visit(
        [&to](const auto& v) {
          const size_t bytes = v.size() * sizeof(v[0]);
          if (bytes > 0) std::memcpy(to, v.data(), bytes);
          to += bytes;
        },
        row[c]);
  }
  if (column.sequences) joined.lod() = {std::move(offsets)};
  return joined;
}

}  // namespace

RowDecoder::RowDecoder(PreprocessConfig config) : config_(std::move(config)) {
  if (config_.csv) AddCsvColumns(*config_.csv);
  if (config_.picture) {
    const RawPicture& picture = *config_.picture;
    Shape shape = {picture.channels, picture.height, picture.width};
    if (picture.transform && picture.transform->crop_size > 0)
      shape[1] = shape[2] = picture.transform->crop_size;
    columns_.push_back({picture.column, DType::kFloat32, shape});
    SetTables(picture);
  }
  if (config_.text) {
    columns_.push_back({config_.text->column, DType::kInt64, {-1}});
    for (const std::string& c : config_.text->characters)
      characters_.emplace(c, static_cast<int64_t>(characters_.size()));
  }
  AddArrayColumns();
}

void RowDecoder::AddArrayColumns() {
  for (const RawArray& array : config_.arrays) {
    columns_.push_back({array.column, array.dtype, Shape(array.shape), array.sequences});
    if (array.sequences) columns_.push_back({array.column + "@LENGTH", DType::kInt64, {1}});
  }
}

void RowDecoder::AddCsvColumns(const RawCsv& csv) {
  int64_t features = 0;
  for (size_t i = 0; i < csv.columns.size(); ++i) {
    const CsvColumn& column = csv.columns[i].column;
    const size_t words = column.categories.size();
    if (column.text())
      texts_.push_back(i);
    else if (!column.ids.empty())
      ids_.push_back(i);
    else if (!column.sequence.empty())
      sequences_.push_back(i);
    else
      data_.push_back(i), features += words > 0 ? static_cast<int64_t>(words) : 1;
  }
  if (features > 0) {
    const Shape shape = csv.shape.empty() ? Shape{features} : Shape(csv.shape);
    if (!shape.IsKnown() || shape.numel() != features) {
      ThrowInvalid(fmt::format("csv: shape {} does not hold the {} values of a row",
                               shape.ToString(), features));
    }
    columns_.push_back({"data", DType::kFloat32, shape});
  }
  for (const size_t i : ids_) columns_.push_back({csv.columns[i].column.ids, DType::kInt64, {1}});
  for (const size_t i : sequences_) {
    const std::string& name = csv.columns[i].column.sequence;
    columns_.push_back({name, DType::kInt64, {1}, true});
    columns_.push_back({name + "@LENGTH", DType::kInt64, {1}});
  }
  for (const size_t i : texts_) {
    const CsvColumn& column = csv.columns[i].column;
    const bool sequences = column.length == 0;
    columns_.push_back(
        {NameOfIds(column), DType::kInt64, {sequences ? 1 : column.length}, sequences});
    columns_.push_back({NameOfIds(column) + "@LENGTH", DType::kInt64, {1}});
  }
}

void RowDecoder::SetTables(const RawPicture& picture) {
  const auto of_channel = [](const std::vector<float>& values, size_t c, float otherwise) {
    return values.empty() ? otherwise : values[values.size() == 1 ? 0 : c];
  };
  for (size_t c = 0; c < static_cast<size_t>(picture.channels); ++c) {
    const float mean = of_channel(picture.mean, c, 0), scale = of_channel(picture.scale, c, 1);
    std::array<float, 256>& table = bytes_.emplace_back();
    for (size_t i = 0; i < table.size(); ++i) table[i] = (static_cast<float>(i) - mean) * scale;
  }
  if (!picture.transform) return;
  const int64_t plane = picture.height * picture.width;
  const std::vector<float>& values = picture.transform->mean_value;
  mean_ = picture.mean_image;
  if (!mean_.empty()) return;
  mean_.assign(static_cast<size_t>(picture.channels * plane), 0);
  for (size_t i = 0; i < mean_.size() && !values.empty(); ++i)
    mean_[i] = values[values.size() == 1 ? 0 : i / static_cast<size_t>(plane)];
}

std::string RowDecoder::NameOf(size_t column) const {
  const RawColumn& raw = config_.csv->columns[column];
  return raw.column.name.empty() ? std::to_string(raw.number) : raw.column.name;
}

// The values of a cell that is no part of "data".
void RowDecoder::AppendOwn(const CsvColumn& column, const std::string& cell, DecodedRow* row) {
  if (!column.text() && !column.ids.empty()) {
    row->emplace_back(std::vector<int64_t>{WordIn(column, cell)});
    return;
  }
  std::vector<int64_t> ids = column.text() ? TextIdsOf(column, cell) : SequenceIn(column, cell);
  const auto length = static_cast<int64_t>(ids.size());
  if (column.text() && column.length > 0)
    ids.resize(static_cast<size_t>(column.length), PaddingOf(column));
  row->emplace_back(std::move(ids));
  row->emplace_back(std::vector<int64_t>{length});
}

DecodedRow RowDecoder::DecodeCells(std::span<const std::string_view> cells) const {
  const std::vector<RawColumn>& columns = config_.csv->columns;
  std::vector<float> data;
  DecodedRow row;
  const auto at = [&](size_t i, auto f) {
    try {
      f(columns[i].column, std::string(cells[i]));
    } catch (const Error& e) {
      throw CellError(e, i);
    }
  };
  for (const size_t i : data_) {
    at(i, [&](const CsvColumn& column, const std::string& cell) {
      AppendToData(column, cell, &data);
    });
  }
  if (!data_.empty()) row.emplace_back(std::move(data));
  for (const auto* indices : {&ids_, &sequences_, &texts_}) {
    for (const size_t i : *indices) {
      at(i,
         [&](const CsvColumn& column, const std::string& cell) { AppendOwn(column, cell, &row); });
    }
  }
  return row;
}

DecodedRow RowDecoder::DecodePicture(const Tensor& given) const {
  const RawPicture& raw = *config_.picture;
  Tensor picture = given;
  if (picture.shape().rank() == 2)
    picture = picture.Reshaped({1, picture.shape()[0], picture.shape()[1]});
  const Shape whole = {raw.channels, raw.height, raw.width};
  const bool bytes_given = picture.dtype() == DType::kUInt8 && picture.shape().rank() == 3;
  if (bytes_given && picture.shape()[0] == raw.channels && picture.shape() != whole &&
      picture.numel() > 0)
    picture = ResizePicture(picture, raw.height, raw.width);
  if (!bytes_given || picture.shape() != whole) {
    ThrowInvalid(fmt::format("the model reads pictures uint8 {}, this one is {} {}",
                             whole.ToString(), ToString(given.dtype()), given.shape().ToString()));
  }
  const Shape& shape = columns_[0].shape;
  const int64_t top = (raw.height - shape[1]) / 2, left = (raw.width - shape[2]) / 2;
  const uint8_t* bytes = picture.data<uint8_t>();
  std::vector<float> values;
  values.reserve(static_cast<size_t>(shape.numel()));
  for (int64_t c = 0; c < raw.channels; ++c) {
    for (int64_t y = 0; y < shape[1]; ++y) {
      const int64_t row = (c * raw.height + top + y) * raw.width + left;
      for (int64_t at = row; at < row + shape[2]; ++at) {
        float value = bytes_[static_cast<size_t>(c)][bytes[at]];
        if (raw.transform) value = (value - mean_[static_cast<size_t>(at)]) * raw.transform->scale;
        values.push_back(value);
      }
    }
  }
  DecodedRow decoded;
  decoded.emplace_back(std::move(values));
  return decoded;
}

DecodedRow RowDecoder::DecodeText(std::string_view text) const {
  std::vector<int64_t> ids;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = Utf8CharacterBytes(text.substr(at));
    if (bytes == 0) ThrowInvalid(fmt::format("byte {} of the text is not UTF-8", at));
    const auto found = characters_.find(text.substr(at, bytes));
    if (found == characters_.end()) {
      ThrowInvalid(fmt::format("the character {} at byte {} is not in the vocabulary",
                               Quote(text.substr(at, bytes)), at));
    }
    ids.push_back(found->second);
    at += bytes;
  }
  if (ids.empty()) ThrowInvalid("the text is empty");
  DecodedRow decoded;
  decoded.emplace_back(std::move(ids));
  return decoded;
}

namespace {

template <class T>
ColumnValues ValuesOf(const Tensor& array) {
  const std::span<const T> values = array.span<T>();
  return std::vector<T>(values.begin(), values.end());
}

ColumnValues ValuesOf(const Tensor& array) {
  switch (array.dtype()) {
    case DType::kFloat32:
      return ValuesOf<float>(array);
    case DType::kFloat64:
      return ValuesOf<double>(array);
    case DType::kInt32:
      return ValuesOf<int32_t>(array);
    case DType::kInt64:
      return ValuesOf<int64_t>(array);
    default:
      return ValuesOf<uint8_t>(array);
  }
}

}  // namespace

DecodedRow RowDecoder::DecodeArrays(std::span<const Tensor> arrays) const {
  DecodedRow row;
  for (size_t i = 0; i < config_.arrays.size(); ++i) {
    const RawArray& want = config_.arrays[i];
    const Tensor& array = arrays[i];
    Shape shape;
    const int64_t length = array.shape().rank() > 0 ? array.shape()[0] : 0;
    if (want.sequences) shape.Append(length);
    for (const int64_t dim : want.shape) shape.Append(dim);
    if (array.dtype() != want.dtype || array.shape() != shape) {
      ThrowInvalid(fmt::format("the model reads {} as {}{} {}, this row is {} {}",
                               Quote(want.column), want.sequences ? "sequences of " : "",
                               ToString(want.dtype), Shape(want.shape).ToString(),
                               ToString(array.dtype()), array.shape().ToString()));
    }
    row.push_back(ValuesOf(array));
    if (want.sequences) row.emplace_back(std::vector<int64_t>{length});
  }
  return row;
}

bool RowDecoder::Together(const DecodedRow& a, const DecodedRow& b) const {
  return !config_.text || SizeOfColumn(a[0]) == SizeOfColumn(b[0]);
}

std::vector<DataColumn> RowDecoder::ColumnsOf(const DecodedRow& row) const {
  std::vector<DataColumn> columns = columns_;
  if (config_.text) columns[0].shape = {static_cast<int64_t>(SizeOfColumn(row[0]))};
  return columns;
}

std::vector<Tensor> RowDecoder::Batch(std::span<const DecodedRow> rows) const {
  const std::vector<DataColumn> columns = ColumnsOf(rows[0]);
  std::vector<Tensor> batch;
  for (size_t c = 0; c < columns.size(); ++c) batch.push_back(JoinColumn(rows, c, columns[c]));
  return batch;
}

}  // namespace coracle::inline internal
