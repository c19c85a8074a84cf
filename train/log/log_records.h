#pragma once
// Reads log.jsonl files of runs. run_log.h lists the records.

#include <coracle/framework/base/json_reader.h>
#include <coracle/train/report/report.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Calls `visit` for each record of the file. Ignores an incomplete last line, and one that a killed
// run left before a resumed one. Throws kInvalidArgument, with the number of the line, for a line
// that is not a record.
void ForEachLogRecord(const std::string& path, const std::function<void(const JsonReader&)>& visit);

// How a run went, as far as its log tells.
struct RunSummary {
  std::string job = {};
  std::vector<std::string> settings = {};  // of --set
  int64_t step = 0, total_steps = 0;       // total_steps is 0 if the job has no limit
  int64_t steps_per_epoch = 0;
  // Evaluations up to this step compute in floating point although the job quantises; -1: none do.
  int64_t float_steps = -1;
  bool ended = false;         // it wrote its last record
  bool stopped = false;       // a signal or the time limit ended it early
  double begin = 0, end = 0;  // first and last record, in seconds since 1970
  // The last values, as "SET/NAME"; "train/loss" is a training loss. Not finite values are nan.
  std::vector<NamedValue> values = {};
  // The smallest and the largest values of evaluations, by the same names. A value that a resumed
  // run computed again counts once. Values up to float_steps count only if OnlyInFloat.
  std::vector<NamedValue> smallest = {}, largest = {};
  std::vector<std::string> rounded = {};  // values with evaluations after float_steps

  // The job quantises, and has no evaluation with this value after float_steps.
  bool OnlyInFloat(const std::string& value) const;
};
// `run` is the directory of a run, or its log.jsonl.
RunSummary ReadRunSummary(const std::string& run);

}  // namespace coracle::inline internal
