#include <coracle/framework/base/text.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/label_unit.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle::inline internal {
namespace {

// The variables that the data's label feeds.
bool IsLabel(const JobConfig& job, const std::string& var) {
  for (const BindConfig& bind : job.bind)
    if (bind.var == var) return bind.column == "label";
  return var == "label";
}

bool HasUnit(const JobConfig& job, const MetricConfig& metric) {
  return (metric.kind == MetricKind::kMae || metric.kind == MetricKind::kRmse) &&
         IsLabel(job, metric.label);
}

}  // namespace

LabelScale LabelScaleOf(const JobConfig& job, const DataSource& data) {
  const auto fitted = data.fitted();
  const auto* given = std::get_if<CsvOptions>(&job.train.source);
  const CsvOptions* csv = fitted && fitted->csv ? &*fitted->csv : given;
  if (!csv || csv->label_kind != CsvLabel::kReal) return {};
  return {static_cast<double>(csv->label_mean), static_cast<double>(csv->label_scale)};
}

void SetUnits(const JobConfig& job, const DataSource& data, std::vector<MetricConfig>* metrics) {
  const double unit = 1 / std::abs(LabelScaleOf(job, data).scale);
  for (MetricConfig& metric : *metrics)
    if (HasUnit(job, metric)) metric.unit = std::isfinite(unit) ? unit : 1;
}

std::string DescribeUnits(const JobConfig& job, const DataSource& data,
                          const std::vector<MetricConfig>& metrics) {
  const LabelScale scale = LabelScaleOf(job, data);
  if (!scale.changes()) return "";
  std::vector<std::string> own;
  for (const MetricConfig& metric : metrics)
    if (HasUnit(job, metric)) own.push_back(metric.name);
  std::string line = fmt::format("{} is of scaled labels, (label - {}) * {}", job.loss_name,
                                 FormatNumber(scale.mean), FormatNumber(scale.scale));
  if (own.empty()) return line;
  return line + fmt::format("; {} {} in the label's own unit", Join(own, ", "),
                            own.size() == 1 ? "is" : "are");
}

}  // namespace coracle::inline internal
