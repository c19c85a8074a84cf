#pragma once
// The settings that `coracle sweep` tries.

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::tools {

// One --set of a sweep: a field of the job and the values to try.
struct SweepAxis {
  std::string field;
  std::vector<std::string> values;  // empty: a range
  // A range: numbers are drawn evenly between low and high, or evenly in their logarithm. A range
  // of whole numbers gives whole numbers.
  double low = 0, high = 0;
  bool log = false, whole = false;
};

// Parses "FIELD=1,2,3" (commas inside quotes, brackets and braces do not separate),
// "FIELD=LOW..HIGH" or "FIELD=log(LOW..HIGH)". Throws UsageError for another form, a range whose
// ends are not finite or not in order, and a logarithmic range that does not lie above 0. Throws
// kInvalidArgument for a field that no job has and for a value that the field does not take.
SweepAxis ParseSweepAxis(const std::string& text);

// A trial sets one value for each axis: "optimizer.adam.learning_rate=0.01".
using TrialSettings = std::vector<std::string>;

// All combinations of values; the last axis changes first. Throws UsageError for a range, and for
// more than 10,000 combinations.
std::vector<TrialSettings> GridOf(const std::vector<SweepAxis>& axes);
// Draws `count` combinations. The draws of a trial depend only on the seed, the fields and the
// trial's number, so more trials keep the first ones. Equal combinations may occur.
std::vector<TrialSettings> DrawTrials(const std::vector<SweepAxis>& axes, int64_t count,
                                      uint64_t seed);

}  // namespace coracle::tools
