#pragma once
// The unit of a job's labels, whose data may scale them.

#include <coracle/framework/ir/program.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/job/job.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// The data's label is (label - mean) * scale.
struct LabelScale {
  double mean = 0, scale = 1;
  double Undone(double label) const { return label / scale + mean; }
  bool changes() const { return mean != 0 || scale != 1; }
};
// `data` is opened training or test data of the job.
LabelScale LabelScaleOf(const JobConfig& job, const DataSource& data);

// Makes MAE and RMSE of labels that the data or the program scales values in the label's own unit.
void SetUnits(const JobConfig& job, const DataSource& data, const ProgramDesc& program,
              std::vector<MetricConfig>* metrics);

// What a log says of the units of loss and metrics, after SetUnits; "" if no label is scaled.
std::string DescribeUnits(const JobConfig& job, const DataSource& data,
                          const std::vector<MetricConfig>& metrics);

}  // namespace coracle::inline internal
