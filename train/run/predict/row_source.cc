#include <coracle/framework/base/file.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/run/predict/row_json.h>
#include <coracle/train/run/predict/row_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>

namespace coracle::inline internal {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunkBytes = 1 << 16;
constexpr uint64_t kMaxPictureFile = uint64_t{1} << 28;

// Lines of a text that comes in chunks.
class LineReader {
 public:
  LineReader(ReadChunk read, uint64_t most_bytes)
      : read_(std::move(read)), most_bytes_(most_bytes), buffer_(kChunkBytes, '\0') {}

  // Reads the next line that is not empty, without its end; false at the end of the text. A line
  // above the limit is cut off after it.
  bool Next(std::string* line) {
    do {
      line->clear();
      if (!ReadLine(line)) return false;
      ++number_;
      if (number_ == 1 && line->starts_with("\xEF\xBB\xBF")) line->erase(0, 3);
      if (line->ends_with('\r')) line->pop_back();
    } while (line->empty());
    return true;
  }
  int64_t number() const { return number_; }

 private:
  bool ReadLine(std::string* line) {
    bool any = false;
    while (at_ < size_ || Refill()) {
      any = true;
      const char* begin = buffer_.data() + at_;
      const void* end = std::memchr(begin, '\n', size_ - at_);
      const size_t count =
          end ? static_cast<size_t>(static_cast<const char*>(end) - begin) : size_ - at_;
      if (line->size() <= most_bytes_) line->append(begin, count);
      at_ += count + (end ? 1 : 0);
      if (end) return true;
    }
    return any;
  }
  bool Refill() {
    at_ = 0;
    size_ = read_(buffer_.data(), buffer_.size());
    return size_ > 0;
  }

  ReadChunk read_;
  uint64_t most_bytes_;
  std::string buffer_;
  size_t at_ = 0, size_ = 0;
  int64_t number_ = 0;
};

[[noreturn]] void ThrowNoColumn(const std::string& source, const std::string& name,
                                const std::vector<std::string>& names) {
  throw Error(ErrorCode::kNotFound,
              fmt::format("{}: the column {} is missing; there are {}{}", source, Quote(name),
                          Join(names, ", "), DidYouMean(name, names)));
}

// Rows of lines; a line is read by `decode`.
class LineRows : public RowSource {
 public:
  // Decodes a line, and sets the cells of the columns to keep.
  using Decode = std::function<DecodedRow(const std::string& line, SourceRow* row)>;

  LineRows(ReadChunk read, const RowSourceOptions& options, Decode decode)
      : lines_(std::move(read), options.most_bytes),
        options_(options),
        decode_(std::move(decode)) {}

  bool Next(SourceRow* row) override {
    *row = SourceRow();
    if (!lines_.Next(&line_)) return false;
    row->place = fmt::format("{}:{}", options_.name, lines_.number());
    try {
      if (line_.size() > options_.most_bytes)
        ThrowInvalid("the line has more than " + HumanBytes(options_.most_bytes));
      row->row = decode_(line_, row);
    } catch (const Error& e) {
      row->error = e.WithPrefix(row->place);
    }
    row->kept.resize(options_.keep.size());
    return true;
  }
  const std::vector<std::string>& kept() const override { return options_.keep; }

 private:
  LineReader lines_;
  RowSourceOptions options_;
  Decode decode_;
  std::string line_;
};

class CsvRowSource : public RowSource {
 public:
  CsvRowSource(const PredictorCore& core, ReadChunk read, const RowSourceOptions& options)
      : core_(core),
        options_(options),
        csv_(core.config().csv ? *core.config().csv : CsvOfText()),
        reader_(std::move(read), {options.name, csv_.delimiter, options.most_bytes}) {
    if (csv_.header)
      ReadHeader();
    else
      FindNumbers();
  }

  const std::vector<std::string>& kept() const override { return options_.keep; }

  bool Next(SourceRow* row) override {
    *row = SourceRow();
    row->kept.resize(options_.keep.size());
    try {
      if (!reader_.Next(&cells_)) {
        if (!any_) ThrowInvalid(options_.name + ": no rows");
        return false;
      }
    } catch (const Error& e) {
      if (!any_ && reader_.line() == 0) throw;
      any_ = true;
      row->place = fmt::format("{}:{}", options_.name, reader_.line());
      row->error = e;
      reader_.SkipRow();
      return true;
    }
    any_ = true;
    row->place = fmt::format("{}:{}", options_.name, reader_.line());
    Read(row);
    return true;
  }

 private:
  // A model that reads texts has one column.
  static RawCsv CsvOfText() {
    RawCsv csv;
    csv.header = true;
    return csv;
  }

  std::vector<std::string> Columns() const { return core_.columns(); }

  void ReadHeader() {
    std::vector<CsvCell> cells;
    if (!reader_.Next(&cells)) ThrowInvalid(options_.name + ": the file is empty");
    any_ = true;
    for (const CsvCell& cell : cells) names_.push_back(cell.text);
    const std::string place = fmt::format("{}:{}", options_.name, reader_.line());
    for (const std::string& name : Columns()) at_.push_back(Find(place, name));
    for (const std::string& name : options_.keep) kept_at_.push_back(Find(place, name));
    const auto label = std::find(names_.begin(), names_.end(), csv_.label);
    if (csv_.label_number && label != names_.end()) label_at_ = label - names_.begin();
    cells_expected_ = names_.size();
  }

  size_t Find(const std::string& place, const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) ThrowNoColumn(place, name, names_);
    if (std::find(found + 1, names_.end(), name) != names_.end())
      ThrowInvalid(fmt::format("{}: two columns are called {}", place, Quote(name)));
    return static_cast<size_t>(found - names_.begin());
  }

  void FindNumbers() {
    cells_expected_ = static_cast<size_t>(csv_.cells);
    for (const RawColumn& column : csv_.columns) at_.push_back(static_cast<size_t>(column.number));
    if (csv_.label_number) label_at_ = static_cast<ptrdiff_t>(*csv_.label_number);
    for (const std::string& name : options_.keep) {
      int64_t number = 0;
      if (!ParseInt64(name, &number) || number < 0 || number >= csv_.cells) {
        throw Error(ErrorCode::kNotFound,
                    fmt::format("{}: no column {}; the file has no header, and columns are "
                                "numbers from 0 to {}",
                                options_.name, Quote(name), csv_.cells - 1));
      }
      kept_at_.push_back(static_cast<size_t>(number));
    }
  }

  // The place of a column in this row, which may lack the label; none for the label itself.
  std::optional<size_t> PlaceIn(size_t column, bool without_label) const {
    if (!without_label) return column;
    const auto label = static_cast<size_t>(label_at_);
    if (column == label) return std::nullopt;
    return column > label ? column - 1 : column;
  }

  void Read(SourceRow* row) {
    const bool without_label =
        !csv_.header && label_at_ >= 0 && cells_.size() + 1 == cells_expected_;
    try {
      if (cells_.size() != cells_expected_ && !without_label) {
        reader_.Fail(
            1, fmt::format("{} cells, but {}", cells_.size(),
                           csv_.header ? fmt::format("the header has {}", cells_expected_)
                                       : fmt::format("the training data had {}{}", cells_expected_,
                                                     label_at_ < 0 ? "" : " with the label")));
      }
      for (size_t k = 0; k < kept_at_.size(); ++k)
        if (const auto place = PlaceIn(kept_at_[k], without_label))
          row->kept[k] = cells_[*place].text;
      if (label_at_ >= 0 && !without_label)
        row->label = cells_[static_cast<size_t>(label_at_)].text;
      row->row = DecodeRow(without_label);
    } catch (const Error& e) {
      row->error = e;
    }
  }

  DecodedRow DecodeRow(bool without_label) const {
    std::vector<size_t> places;
    std::vector<std::string_view> texts;
    for (const size_t column : at_) {
      places.push_back(*PlaceIn(column, without_label));
      texts.push_back(cells_[places.back()].text);
    }
    if (core_.config().text) {
      return AtCell(places[0], [&] { return core_.decoder().DecodeText(texts[0]); });
    }
    try {
      return core_.decoder().DecodeCells(texts);
    } catch (const CellError& e) {
      throw e.WithPrefix(reader_.Place(cells_[places[e.column]].column));
    }
  }

  template <class F>
  DecodedRow AtCell(size_t place, F decode) const {
    try {
      return decode();
    } catch (const Error& e) {
      throw e.WithPrefix(reader_.Place(cells_[place].column));
    }
  }

  const PredictorCore& core_;
  RowSourceOptions options_;
  RawCsv csv_;
  CsvReader reader_;
  std::vector<std::string> names_;
  std::vector<size_t> at_, kept_at_;  // of the model's columns, and of the columns to keep
  ptrdiff_t label_at_ = -1;
  size_t cells_expected_ = 0;
  std::vector<CsvCell> cells_;
  bool any_ = false;  // a line was read
};

class PictureRows : public RowSource {
 public:
  PictureRows(const PredictorCore& core, std::vector<std::string> files,
              std::optional<int64_t> decode_mb)
      : core_(core), files_(std::move(files)), decode_mb_(decode_mb) {}
  const std::vector<std::string>& kept() const override { return names_; }
  bool Next(SourceRow* row) override {
    *row = SourceRow();
    if (next_ == files_.size()) return false;
    row->place = files_[next_++];
    row->kept = {row->place};
    try {
      row->row =
          DecodePictureFile(core_, ReadFile(row->place, kMaxPictureFile), row->place, decode_mb_);
    } catch (const Error& e) {
      row->error = e;
    }
    return true;
  }

 private:
  const PredictorCore& core_;
  std::vector<std::string> files_;
  std::optional<int64_t> decode_mb_;
  std::vector<std::string> names_ = {"file"};
  size_t next_ = 0;
};

class ArrayRows : public RowSource {
 public:
  ArrayRows(const PredictorCore& core, const std::string& file)
      : core_(core), file_(file), source_(MakeNpzSource({file, ColumnsOf(core)})) {}
  const std::vector<std::string>& kept() const override { return kept_; }

  bool Next(SourceRow* row) override {
    *row = SourceRow();
    if (next_ == source_->size()) return false;
    row->place = fmt::format("{}: row {}", file_, next_);
    try {
      row->row = core_.decoder().DecodeArrays(RowAt(next_));
    } catch (const Error& e) {
      row->error = e.WithPrefix(row->place);
    }
    ++next_;
    return true;
  }

 private:
  static std::vector<NpzColumn> ColumnsOf(const PredictorCore& core) {
    std::vector<NpzColumn> columns;
    for (const std::string& name : core.columns()) columns.push_back({name, ""});
    return columns;
  }

  // A row of each column, without the columns of lengths.
  std::vector<Tensor> RowAt(int64_t row) const {
    std::vector<Tensor> batch;
    for (const DataColumn& column : source_->columns()) {
      Shape shape{column.sequences ? 0 : 1};
      for (const int64_t dim : column.shape) shape.Append(dim);
      batch.emplace_back(column.dtype, shape);
    }
    source_->Get(std::span(&row, 1), batch);
    std::vector<Tensor> arrays;
    for (const std::string& name : core_.columns()) {
      const auto index = static_cast<size_t>(source_->FindColumn(name));
      const DataColumn& column = source_->columns()[index];
      arrays.push_back(column.sequences ? batch[index] : batch[index].Reshaped(column.shape));
    }
    return arrays;
  }

  const PredictorCore& core_;
  std::string file_;
  DataSourcePtr source_;
  std::vector<std::string> kept_;
  int64_t next_ = 0;
};

}  // namespace

uint64_t DecodeBytes(const PredictorCore& core, std::optional<int64_t> decode_mb) {
  return static_cast<uint64_t>(decode_mb.value_or(core.config().picture->decode_mb)) << 20;
}

// An array has the model's own order of channels already.
DecodedRow DecodePictureFile(const PredictorCore& core, std::string_view bytes,
                             const std::string& source, std::optional<int64_t> decode_mb) {
  const bool npy = bytes.starts_with("\x93NUMPY");
  const RawPicture& raw = *core.config().picture;
  PictureForm form;
  form.channels = raw.channels == 1 || raw.channels == 3 ? raw.channels : 0;
  form.height = raw.height, form.width = raw.width;
  form.order = raw.channel_order;
  form.most_bytes = DecodeBytes(core, decode_mb);
  const Tensor picture = npy ? ParseNpy(bytes, source) : DecodePicture(bytes, source, form);
  try {
    return core.decoder().DecodePicture(picture);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    throw e.WithPrefix(source);
  }
}

std::unique_ptr<RowSource> MakeCsvRows(const PredictorCore& core, ReadChunk read,
                                       const RowSourceOptions& options) {
  if (!core.config().arrays.empty())
    ThrowInvalid(options.name + ": the model reads arrays, not cells");
  return std::make_unique<CsvRowSource>(core, std::move(read), options);
}

std::unique_ptr<RowSource> MakeJsonRows(const PredictorCore& core, ReadChunk read,
                                        const RowSourceOptions& options) {
  return std::make_unique<LineRows>(
      std::move(read), options,
      [&core, keep = options.keep](const std::string& line, SourceRow* row) {
        const RawRow raw = RowOfJson(JsonReader(line, "row"));
        const auto label = raw.cells.find(core.LabelColumn());
        if (label != raw.cells.end()) row->label = label->second;
        for (const std::string& name : keep) {
          const auto found = raw.cells.find(name);
          row->kept.push_back(found == raw.cells.end() ? "" : found->second);
        }
        return core.Decode(raw);
      });
}

std::unique_ptr<RowSource> MakeTextRows(const PredictorCore& core, ReadChunk read,
                                        const RowSourceOptions& options) {
  for (const std::string& name : options.keep)
    if (name != core.columns()[0]) ThrowNoColumn(options.name, name, core.columns());
  return std::make_unique<LineRows>(
      std::move(read), options,
      [&core, kept = options.keep.size()](const std::string& line, SourceRow* row) {
        row->kept.assign(kept, line);
        return core.decoder().DecodeText(line);
      });
}

std::unique_ptr<RowSource> MakePictureRows(const PredictorCore& core,
                                           std::vector<std::string> files,
                                           std::optional<int64_t> decode_mb) {
  return std::make_unique<PictureRows>(core, std::move(files), decode_mb);
}

std::unique_ptr<RowSource> MakeArrayRows(const PredictorCore& core, const std::string& file) {
  return std::make_unique<ArrayRows>(core, file);
}

bool IsPictureName(const std::string& path) {
  std::string ending = fs::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<const char*, 7> kEndings = {".png", ".jpg", ".jpeg", ".ppm",
                                                   ".pgm", ".pnm", ".npy"};
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

std::vector<std::string> PicturesIn(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    if (IsPictureName(it->path().string())) files.push_back(it->path().string());
  std::sort(files.begin(), files.end());
  if (!files.empty()) return files;
  throw Error(ErrorCode::kNotFound,
              fmt::format("the directory {} holds no pictures (.png, .jpg, .ppm, .pgm, .npy)",
                          Quote(directory, 300)));
}

}  // namespace coracle::inline internal
