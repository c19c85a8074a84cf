#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/csv_columns.h>
#include <coracle/train/data/csv_reader.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/standardize.h>
#include <coracle/train/data/text_column.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
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
  CsvRows(const CsvOptions& options, std::vector<std::string> names, CsvLayout layout)
      : options_(options),
        names_(std::move(names)),
        layout_(std::move(layout)),
        ids_(layout_.ids.size()),
        sequences_(layout_.sequences.size()) {
    for (const size_t i : layout_.texts) {
      try {
        texts_.emplace_back(layout_.columns[i]);
      } catch (const Error& e) {
        throw e.WithPrefix(fmt::format("column {}", Quote(layout_.columns[i].name)));
      }
    }
  }

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
    for (size_t k = 0; k < texts_.size(); ++k)
      AtCell(reader, cells[layout_.texts[k]],
             [&](const std::string& cell) { texts_[k].Add(cell); });
    AddLabel(reader, cells[layout_.label]);
    lines_.push_back(reader.line());
  }

  DataSourcePtr Source(const RowChoice& fit_rows) {
    const auto rows = static_cast<int64_t>(lines_.size());
    if (rows == 0) ThrowInvalid(options_.file + ": no rows below the header");
    const std::vector<int64_t> fit = ChosenRows(fit_rows, rows);
    Standardize(fit);
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
    for (TextRows& text : texts_)
      for (MemoryColumn& column : text.Finish(fit, options_.file))
        columns.push_back(std::move(column));
    const bool real = options_.label_kind == CsvLabel::kReal;
    columns.push_back({"label",
                       real ? Tensor::Of<float>({rows, 1}, real_labels_)
                            : Tensor::Of<int64_t>({rows, 1}, labels_),
                       {1}});
    const std::string file = std::filesystem::path(options_.file).filename().string();
    return MakeMemorySource(std::move(columns), fmt::format("csv {}", Quote(file, 300)),
                            {file, std::move(lines_)}, Fitted());
  }

 private:
  void AddLabel(const CsvReader& reader, const CsvCell& label) {
    AtCell(reader, label, [&](const std::string& cell) {
      if (options_.label_kind == CsvLabel::kReal)
        real_labels_.push_back(
            (NumberIn(std::string(Trim(cell)), std::nullopt) - options_.label_mean) *
            options_.label_scale);
      else
        labels_.push_back(ClassOfLabel(options_.classes, cell));
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

  // Computes mean and scale of the numeric columns that have none of their own, and of the label.
  void Standardize(const std::vector<int64_t>& fit) {
    int64_t feature = 0;
    for (size_t i = 0; i < layout_.columns.size(); ++i) {
      CsvColumn& column = layout_.columns[i];
      if (!layout_.used[i]) continue;
      const bool own = OwnScale(i) || !column.categories.empty();
      if (options_.standardize && !own) {
        const ValueScale scale =
            ScaleOf(data_, layout_.features, feature, fit, options_.file, NameOf(i));
        column.mean = scale.mean;
        column.scale = scale.scale;
      }
      feature += std::max<int64_t>(static_cast<int64_t>(column.categories.size()), 1);
    }
    if (options_.standardize_label && options_.label_kind == CsvLabel::kReal)
      label_scale_ = ScaleOf(real_labels_, 1, 0, fit, options_.file, "label");
  }

  // Whether the options give the column a mean or a scale.
  bool OwnScale(size_t i) const {
    if (layout_.columns[i].name.empty()) return false;
    const auto own =
        std::find_if(options_.columns.begin(), options_.columns.end(),
                     [&](const CsvColumn& c) { return c.name == layout_.columns[i].name; });
    return own->mean || own->scale;
  }

  // A name by which the options find the column in this file and in others.
  std::string NameOf(size_t i) const {
    if (!layout_.columns[i].name.empty()) return layout_.columns[i].name;
    const bool unique = !names_.empty() && std::count(names_.begin(), names_.end(), names_[i]) == 1;
    return unique ? names_[i] : std::to_string(i);
  }

  // The options with the means, scales and lists of words of these rows.
  std::shared_ptr<const FittedOptions> Fitted() const {
    FittedOptions fitted;
    CsvOptions& csv = fitted.csv.emplace(options_);
    csv.columns.clear();
    for (size_t i = 0; i < layout_.columns.size(); ++i) {
      const bool described = !layout_.columns[i].name.empty();
      const bool computed = options_.standardize && layout_.used[i];
      if (!described && !computed) continue;
      csv.columns.push_back(layout_.columns[i]);
      csv.columns.back().name = NameOf(i);
      for (size_t k = 0; k < texts_.size(); ++k)
        if (layout_.texts[k] == i) texts_[k].SetVocabulary(&csv.columns.back());
    }
    csv.standardize = csv.standardize_label = false;
    if (label_scale_) csv.label_mean = label_scale_->mean, csv.label_scale = label_scale_->scale;
    return std::make_shared<const FittedOptions>(std::move(fitted));
  }

  const CsvOptions& options_;
  std::vector<std::string> names_;  // in the header
  CsvLayout layout_;
  std::optional<ValueScale> label_scale_;
  std::vector<float> data_, real_labels_;
  std::vector<int64_t> labels_;
  std::vector<std::vector<int64_t>> ids_;
  std::vector<SequenceColumn> sequences_;
  std::vector<TextRows> texts_;
  std::vector<int64_t> lines_;  // where each row begins
};

}  // namespace

DataSourcePtr ParseCsv(std::string_view text, const CsvOptions& options,
                       const RowChoice& fit_rows) {
  CsvReader reader(text, {options.file, options.delimiter});
  std::vector<CsvCell> cells;
  if (!reader.Next(&cells)) ThrowInvalid(options.file + ": no rows");
  std::vector<std::string> names;
  for (const CsvCell& cell : cells)
    if (options.header) names.push_back(cell.text);
  CsvLayout layout = LayoutOf(options, names, cells.size());
  CsvRows rows(options, std::move(names), std::move(layout));
  bool more = !options.header || reader.Next(&cells);
  for (; more; more = reader.Next(&cells)) rows.Add(reader, cells);
  return rows.Source(fit_rows);
}

DataSourcePtr MakeCsvSource(const CsvOptions& options, const RowChoice& fit_rows) {
  return ParseCsv(ReadFile(options.file, kMaxBytes), options, fit_rows);
}

}  // namespace coracle
