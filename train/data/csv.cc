#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/csv_columns.h>
#include <coracle/train/data/csv_reader.h>
#include <coracle/train/data/data_source.h>
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

namespace coracle {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 34;

// A column of sequences, one after the other.
struct SequenceColumn {
  std::vector<int64_t> values = {};
  std::vector<uint64_t> offsets = {0};

  void Add(const std::vector<int64_t>& sequence) {
    values.insert(values.end(), sequence.begin(), sequence.end());
    offsets.push_back(values.size());
  }
  MemoryColumn Column(const std::string& name) {
    MemoryColumn column{name, Tensor(), {1}};
    column.rows = Tensor::Of<int64_t>({static_cast<int64_t>(values.size()), 1}, values);
    column.offsets = std::move(offsets);
    return column;
  }
};

// The rows read so far, column by column.
class CsvRows {
 public:
  CsvRows(const CsvOptions& options, CsvLayout layout)
      : options_(options),
        layout_(std::move(layout)),
        ids_(layout_.ids.size()),
        sequences_(layout_.sequences.size()) {}

  void Add(const CsvReader& reader, const std::vector<CsvCell>& cells) {
    const size_t count = layout_.columns.size();
    if (cells.size() != count)
      reader.Fail(1, fmt::format("{} cells, the first line has {}", cells.size(), count));
    for (size_t i = 0; i < count; ++i) {
      if (!layout_.used[i]) continue;
      AtCell(reader, cells[i],
             [&](const std::string& cell) { AppendToData(layout_.columns[i], cell, &data_); });
    }
    for (size_t k = 0; k < ids_.size(); ++k) {
      const size_t i = layout_.ids[k];
      ids_[k].push_back(AtCell(reader, cells[i], [&](const std::string& cell) {
        return WordIn(layout_.columns[i], cell);
      }));
    }
    for (size_t k = 0; k < sequences_.size(); ++k) {
      const size_t i = layout_.sequences[k];
      sequences_[k].Add(AtCell(reader, cells[i], [&](const std::string& cell) {
        return SequenceIn(layout_.columns[i], cell);
      }));
    }
    AddLabel(reader, cells[layout_.label]);
    lines_.push_back(reader.line());
  }

  DataSourcePtr Source() {
    const auto rows = static_cast<int64_t>(lines_.size());
    if (rows == 0) ThrowInvalid(options_.file + ": no rows below the header");
    std::vector<MemoryColumn> columns;
    if (layout_.features > 0)
      columns.push_back(
          {"data", Tensor::Of<float>({rows, layout_.features}, data_), ShapeOfData()});
    for (size_t k = 0; k < ids_.size(); ++k)
      columns.push_back(
          {layout_.columns[layout_.ids[k]].ids, Tensor::Of<int64_t>({rows, 1}, ids_[k]), {1}});
    for (size_t k = 0; k < sequences_.size(); ++k) {
      columns.push_back(sequences_[k].Column(layout_.columns[layout_.sequences[k]].sequence));
      MemoryColumn lengths = LengthsOf(columns.back());
      columns.push_back(std::move(lengths));
    }
    const bool real = options_.label_kind == CsvLabel::kReal;
    columns.push_back({"label",
                       real ? Tensor::Of<float>({rows, 1}, real_labels_)
                            : Tensor::Of<int64_t>({rows, 1}, labels_),
                       {1}});
    const std::string file = std::filesystem::path(options_.file).filename().string();
    return MakeMemorySource(std::move(columns), fmt::format("csv {}", Quote(file, 300)),
                            {file, std::move(lines_)});
  }

 private:
  void AddLabel(const CsvReader& reader, const CsvCell& label) {
    AtCell(reader, label, [&](const std::string& cell) {
      if (options_.label_kind == CsvLabel::kReal)
        real_labels_.push_back(NumberIn(cell, std::nullopt));
      else
        labels_.push_back(LabelIn(options_, cell));
    });
  }

  Shape ShapeOfData() const {
    const Shape shape = options_.shape.empty() ? Shape{layout_.features} : Shape(options_.shape);
    if (!shape.IsKnown() || shape.numel() != layout_.features) {
      ThrowInvalid(fmt::format("{}: shape {} does not hold the {} values of a row", options_.file,
                               shape.ToString(), layout_.features));
    }
    return shape;
  }

  const CsvOptions& options_;
  CsvLayout layout_;
  std::vector<float> data_, real_labels_;
  std::vector<int64_t> labels_;
  std::vector<std::vector<int64_t>> ids_;
  std::vector<SequenceColumn> sequences_;
  std::vector<int64_t> lines_;  // where each row begins
};

}  // namespace

DataSourcePtr ParseCsv(std::string_view text, const CsvOptions& options) {
  CsvReader reader(text, {options.file, options.delimiter});
  std::vector<CsvCell> cells;
  if (!reader.Next(&cells)) ThrowInvalid(options.file + ": no rows");
  std::vector<std::string> names;
  for (const CsvCell& cell : cells)
    if (options.header) names.push_back(cell.text);
  CsvRows rows(options, LayoutOf(options, names, cells.size()));
  bool more = !options.header || reader.Next(&cells);
  for (; more; more = reader.Next(&cells)) rows.Add(reader, cells);
  return rows.Source();
}

DataSourcePtr MakeCsvSource(const CsvOptions& options) {
  return ParseCsv(ReadFile(options.file, kMaxBytes), options);
}

}  // namespace coracle
