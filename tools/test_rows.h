#pragma once
// `coracle test MODEL --data=rows.csv`: compares answers with the labels of raw rows.

#include <coracle/executor/executor.h>

#include <string>

namespace coracle::tools {

// "rows=150 accuracy=0.98": the share of rows whose best class is the label's, or "mean_error": the
// mean absolute difference of the answered number from the label, for the model's first output.
// Throws the first bad row's error, and kInvalidArgument for a file without labels and for a model
// whose first output is neither classes nor a number.
std::string MeasureRows(const std::string& model, const std::string& file,
                        const CompileOptions& compile);

}  // namespace coracle::tools
