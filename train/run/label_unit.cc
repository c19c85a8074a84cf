#include <coracle/framework/base/text.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/label_unit.h>
#include <coracle/train/run/predict/output_meaning.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>

namespace coracle::inline internal {

LabelScale LabelScaleOf(const JobConfig& job, const DataSource& data) {
  const auto fitted = data.fitted();
  const auto* given = std::get_if<CsvOptions>(&job.train.source);
  const CsvOptions* csv = fitted && fitted->csv ? &*fitted->csv : given;
  if (!csv || csv->label_kind != CsvLabel::kReal) return {};
  return {static_cast<double>(csv->label_mean), static_cast<double>(csv->label_scale)};
}

void SetUnits(const JobConfig& job, const DataSource& data, const ProgramDesc& program,
              std::vector<MetricConfig>* metrics) {
  const double of_data = 1 / std::abs(LabelScaleOf(job, data).scale);
  for (MetricConfig& metric : *metrics) {
    if (metric.kind != MetricKind::kMae && metric.kind != MetricKind::kRmse) continue;
    const std::optional<double> of_program = UnitOfTarget(job, program, metric.label);
    if (of_program && std::isfinite(*of_program * of_data)) metric.unit = *of_program * of_data;
  }
}

std::string DescribeUnits(const JobConfig& job, const DataSource& data,
                          const std::vector<MetricConfig>& metrics) {
  const LabelScale scale = LabelScaleOf(job, data);
  std::vector<std::string> own, parts;
  for (const MetricConfig& metric : metrics)
    if (metric.unit != 1) own.push_back(metric.name);
  if (scale.changes())
    parts.push_back(fmt::format("{} is of scaled labels, (label - {}) * {}", job.loss_name,
                                FormatNumber(scale.mean), FormatNumber(scale.scale)));
  if (!own.empty())
    parts.push_back(fmt::format("{} {} in the label's own unit", Join(own, ", "),
                                own.size() == 1 ? "is" : "are"));
  return Join(parts, "; ");
}

}  // namespace coracle::inline internal
