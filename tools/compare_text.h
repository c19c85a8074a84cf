#pragma once
// The output of `compare` and `run --check`.

#include <coracle/inspect/compare_runs.h>
#include <coracle/tools/flag_table.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::tools {

// Names of the two sides: file names, or flags of runs.
struct Sides {
  std::string a, b;
};

// --rtol, --atol and --same_dtype.
struct ToleranceFlags {
  std::optional<double> rtol = {}, atol = {};
  bool same_dtype = true;
};
Fields<ToleranceFlags> ToleranceFields();
// Without --rtol and --atol, integers must be equal.
Tolerance ToleranceOf(const ToleranceFlags& flags);

// Whether one of the two tensors holds complex numbers.
bool HoldsComplex(const TensorDifference& difference);
bool AnyDiffers(const std::vector<TensorDifference>& differences);

// Makes a line for each tensor that differs (at most forty), then a line with the counts.
std::string CompareText(const std::vector<TensorDifference>& differences,
                        const Tolerance& tolerance, const Sides& sides);
// Describes where the two runs diverge first, and the worst variable after that.
std::string RunsText(const RunsDifference& runs, const Tolerance& tolerance, const Sides& sides);

// The document "coracle.compare" of docs/json.md.
std::string CompareJson(const std::vector<TensorDifference>& differences,
                        const Tolerance& tolerance, const Sides& sides);
std::string RunsJson(const RunsDifference& runs, const Tolerance& tolerance, const Sides& sides);

}  // namespace coracle::tools
