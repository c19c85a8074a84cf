#pragma once
// What `compare` and `run --check` print.

#include <coracle/inspect/compare_runs.h>

#include <string>
#include <vector>

namespace coracle::tools {

// The two sides as they are called: file names, or flags of runs.
struct Sides {
  std::string a, b;
};

// From --rtol, --atol and --same_dtype. Throws UsageError for negative ones.
Tolerance ToleranceFromFlags();

// Whether one of the two tensors holds complex numbers.
bool HoldsComplex(const TensorDifference& difference);
bool AnyDiffers(const std::vector<TensorDifference>& differences);

// A line for each tensor that differs (the first forty), then one that counts.
std::string CompareText(const std::vector<TensorDifference>& differences,
                        const Tolerance& tolerance, const Sides& sides);
// Where two runs part, and the worst variable after that.
std::string RunsText(const RunsDifference& runs, const Tolerance& tolerance, const Sides& sides);

// "coracle.compare", see docs/json.md.
std::string CompareJson(const std::vector<TensorDifference>& differences,
                        const Tolerance& tolerance, const Sides& sides);
std::string RunsJson(const RunsDifference& runs, const Tolerance& tolerance, const Sides& sides);

}  // namespace coracle::tools
