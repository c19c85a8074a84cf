#include <coracle/framework/base/text.h>
#include <coracle/tools/raw_rows.h>
#include <coracle/tools/test_rows.h>
#include <coracle/train/data/csv_columns.h>
#include <coracle/train/log/format.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::tools {
namespace {

constexpr size_t kBatch = 64;

[[noreturn]] void FailAt(const SourceRow& row, const std::string& what) {
  ThrowInvalid(row.place + ": " + what);
}

// Sums up how far the answers are from the labels.
class Errors {
 public:
  explicit Errors(const PredictorCore& core) : csv_(*core.config().csv) {
    const OutputKind kind = core.outputs().at(0).kind;
    classes_ = kind == OutputKind::kClasses;
    if (classes_ ? csv_.label_kind != CsvLabel::kReal : kind == OutputKind::kNumber) return;
    ThrowInvalid(
        fmt::format("the labels cannot be compared with the output {}: it must be a score "
                    "for each class, or one number",
                    Quote(core.outputs()[0].var)));
  }

  void Add(const SourceRow& row, const RowAnswer& answer) {
    if (!row.label) FailAt(row, "the label is missing");
    ++rows_;
    sum_ += classes_ ? IsRight(row, answer) : Distance(row, answer);
  }
  std::string Text() const {
    return fmt::format("rows={} {}={}", rows_, classes_ ? "accuracy" : "mean_error",
                       FormatNumber(sum_ / static_cast<double>(rows_)));
  }
  int64_t rows() const { return rows_; }

 private:
  double IsRight(const SourceRow& row, const RowAnswer& answer) const {
    if (answer.text == "nan" && std::isnan(answer.classes.back().score)) return 0;
    const bool named = csv_.label_kind == CsvLabel::kClass;
    const std::vector<std::string> numbers;
    try {
      const int64_t label = ClassOfLabel(named ? csv_.classes : numbers, *row.label);
      return answer.classes[0].index == label ? 1 : 0;
    } catch (const Error& e) {
      FailAt(row, "the " + e.message());
    }
  }

  double Distance(const SourceRow& row, const RowAnswer& answer) const {
    try {
      return std::abs(*answer.number - NumberOfLabel(*row.label));
    } catch (const Error& e) {
      FailAt(row, "the " + e.message());
    }
  }

  const RawCsv& csv_;
  bool classes_ = false;
  int64_t rows_ = 0;
  double sum_ = 0;
};

void Measure(const PredictorCore& core, std::vector<SourceRow>* rows, Errors* errors) {
  std::vector<DecodedRow> decoded;
  for (SourceRow& row : *rows) decoded.push_back(std::move(*row.row));
  const auto answers = core.Run(decoded, 0);
  for (size_t i = 0; i < rows->size(); ++i) errors->Add((*rows)[i], answers[i][0]);
  rows->clear();
}

}  // namespace

std::string MeasureRows(const std::string& model, const std::string& file,
                        const CompileOptions& compile) {
  PredictOptions options;
  options.compile = compile;
  const Predictor predictor(model, options);
  const PredictorCore& core = predictor.core();
  if (!core.config().csv) ThrowInvalid("--data is a csv file, but the model does not read cells");
  Errors errors(core);
  const RawRows source = OpenRawRows(core, file, "csv", {});
  std::vector<SourceRow> rows;
  SourceRow row;
  while (source.source->Next(&row)) {
    if (row.error) throw Error(*row.error);
    rows.push_back(std::move(row));
    if (rows.size() == kBatch) Measure(core, &rows, &errors);
  }
  Measure(core, &rows, &errors);
  if (errors.rows() == 0) ThrowInvalid(file + ": no rows below the header");
  return errors.Text();
}

}  // namespace coracle::tools
