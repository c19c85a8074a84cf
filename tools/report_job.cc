#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/report_rows.h>
#include <coracle/train/job/channel_order.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/evaluation/saved_evaluation.h>
#include <coracle/train/run/label_unit.h>
#include <coracle/train/run/predict/output_meaning.h>
#include <coracle/train/run/predict/predictor_core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

namespace coracle::tools {
namespace {

constexpr int64_t kMostCells = 16;  // values of a row that are shown

// The meaning of the model's first output: as described next to the model, else by its shape.
OutputMeaning MeaningOfModel(const std::string& file, const InferenceModel& model,
                             const std::vector<std::string>& carried, const JobConfig& job,
                             bool integer_labels, QualityReport* report) {
  std::string source;
  const std::string text = FindPreprocess(file, &source);
  if (!text.empty()) {
    const PreprocessConfig config = ParsePreprocess(text, source);
    if (!config.outputs.empty()) return config.outputs[0];
  }
  OutputMeaning meaning;
  for (const std::string& name : model.fetch_names) {
    if (std::find(carried.begin(), carried.end(), name) != carried.end()) continue;
    const VarDesc& var = *model.program.Root().FindVar(name);
    const Shape& shape = var.shape();
    const bool several = shape.rank() == 2 && shape[1] != 1 && integer_labels;
    const bool scores = several && HoldsScores(model.program, name, job);
    meaning.var = name;
    meaning.kind = scores    ? OutputKind::kClasses
                   : several ? OutputKind::kValues
                             : OutputKind::kNumber;
    if (!several) {
      report->notes.emplace_back(
          "nothing describes the output: it is compared with the labels as they are");
    }
    return meaning;
  }
  ThrowInvalid(Quote(file, 300) + " has no output");
}

// The pixels of an image column, stretched to bytes, with red first.
Tensor PictureOf(const Tensor& image, ChannelOrder order) {
  const Tensor wide = image.Cast(DType::kFloat64);
  double low = INFINITY, high = -INFINITY;
  for (const double v : wide.span<double>()) {
    if (!std::isfinite(v)) continue;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  Tensor picture(DType::kUInt8, image.shape());
  for (int64_t i = 0; i < image.numel(); ++i) {
    const double v = wide.data<double>()[i];
    const double share = high > low ? (v - low) / (high - low) : 0;
    picture.data<uint8_t>()[i] =
        static_cast<uint8_t>(std::isfinite(share) ? std::lround(share * 255) : 0);
  }
  if (order == ChannelOrder::kBgr && image.shape()[0] == 3) {
    const int64_t plane = image.numel() / 3;
    uint8_t* first = picture.data<uint8_t>();
    std::swap_ranges(first, first + plane, first + 2 * plane);
  }
  return picture;
}

std::string CellsText(const Tensor& values) {
  const Tensor wide = values.Cast(DType::kFloat64);
  std::vector<std::string> numbers;
  for (const double v : wide.span<double>()) numbers.push_back(FormatNumber(v));
  return Join(numbers, " ");
}

// A row of a column that is no sequence.
Tensor ValuesOf(const Tensor& batch, const DataColumn& column, int64_t row) {
  Tensor values(batch.dtype(), column.shape);
  if (values.empty()) return values;
  std::memcpy(values.raw(),
              static_cast<const char*>(batch.raw()) + static_cast<size_t>(row) * values.nbytes(),
              values.nbytes());
  return values;
}

bool IsPicture(const DataColumn& column) {
  return !column.sequences && column.shape.rank() == 3 &&
         (column.shape[0] == 1 || column.shape[0] == 3) && column.shape[1] > 3 &&
         column.shape[2] > 3;
}

bool IsShown(const DataColumn& column) {
  return !column.sequences && !IsPicture(column) && column.shape.numel() <= kMostCells &&
         column.name != "label";
}

// Collects the rows of batches, and shows the worst ones.
class TestSetReport {
 public:
  TestSetReport(const ReportRequest& request, const JobConfig& job, OutputMeaning meaning,
                QualityReport* report)
      : request_(request), job_(job), meaning_(std::move(meaning)), report_(report) {}

  void Add(const Tensor& output, const std::vector<Tensor>& batch, int label, int64_t first,
           const DataSource& data) {
    const Tensor& labels = batch[static_cast<size_t>(label)];
    const int64_t rows = RowsOfBatch(batch[0]);
    if (!collector_) Begin(labels, data);
    if (labels.numel() != rows || !labels.lod().empty())
      ThrowInvalid(
          fmt::format("the labels are {}: there must be one for each row", labels.ToString()));
    const Tensor wanted = labels.Cast(DType::kFloat64);
    for (int64_t r = 0; r < rows; ++r) {
      const RowAnswer answer = AnswerOf(meaning_, output, r, rows, 1);
      ReportedRow row = RowOf(batch, r);
      row.place = data.Place(first + r);
      const double truth = wanted.data<double>()[r];
      if (answer.number) {
        collector_->AddNumber(*answer.number, scale_.Undone(truth), std::move(row));
        continue;
      }
      const Tensor scores = answer.values.Cast(DType::kFloat64);
      collector_->AddScores(scores.span<double>(), static_cast<int64_t>(truth), std::move(row));
    }
  }
  void Finish() {
    if (!collector_) ThrowInvalid("there are no rows to measure");
    collector_->Finish(request_.top, report_);
  }

 private:
  void Begin(const Tensor& labels, const DataSource& data) {
    const bool real = IsFloating(labels.dtype());
    CheckReportedOutput(meaning_, real);
    collector_.emplace(meaning_, real, request_.worst);
    scale_ = LabelScaleOf(job_, data);
    columns_ = data.columns();
    for (const DataColumn& column : columns_)
      if (IsShown(column)) report_->columns.push_back(column.name);
  }
  ReportedRow RowOf(const std::vector<Tensor>& batch, int64_t r) const {
    ReportedRow row;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const bool picture = IsPicture(columns_[c]) && row.picture.empty();
      if (!picture && !IsShown(columns_[c])) continue;
      const Tensor own = ValuesOf(batch[c], columns_[c], r);
      if (picture)
        row.picture = PictureOf(own, ChannelOrderOf(job_.train));
      else
        row.cells.push_back(CellsText(own));
    }
    return row;
  }

  const ReportRequest& request_;
  const JobConfig& job_;
  OutputMeaning meaning_;
  QualityReport* report_;
  std::optional<ReportCollector> collector_;
  LabelScale scale_;
  std::vector<DataColumn> columns_;
};

}  // namespace

QualityReport ReportOnTestSet(const ReportRequest& request) {
  JobConfig job = ReadJob(request.job);
  if (!request.data_dir.empty()) job.data_dir = request.data_dir;
  const std::string file = ModelFileOf(request.model);
  Scope scope;
  const InferenceModel model = OpenMeasuredModel(file, scope);
  std::vector<std::string> carried;
  for (const CarryConfig& carry : CarryOfModel(job, model)) carried.push_back(carry.from);
  const TestSetConfig set = ChooseTestSet(job, request.test_set);
  QualityReport report;
  const DataSourcePtr data = OpenTestSet(job, set);
  const int label = LabelColumnOf(*data, job);
  const bool integers = label >= 0 && IsInteger(data->columns()[static_cast<size_t>(label)].dtype);
  OutputMeaning meaning = MeaningOfModel(file, model, carried, job, integers, &report);
  if (request.scores) meaning.kind = OutputKind::kClasses;
  report.model = request.model;
  report.data = fmt::format("{} of {}", set.name, request.job);
  report.output = meaning.var;
  EvaluateOptions options;
  options.test_set = request.test_set;
  options.compile = request.compile;
  TestSetReport rows(request, job, meaning, &report);
  RunOnTestSet(
      model, scope, job, options, meaning.var,
      [&](const Tensor& output, const std::vector<Tensor>& batch, int label_column, int64_t first,
          const DataSource& source) { rows.Add(output, batch, label_column, first, source); });
  rows.Finish();
  return report;
}

}  // namespace coracle::tools
