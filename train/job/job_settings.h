#pragma once
// Changes fields of a job text, as `coracle train --set=FIELD=VALUE` does.

#include <coracle/train/job/job.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// "optimizer.adam.learning_rate=0.01": a field by its path, and its value as in a job text. Strings
// need no quotes. Of fields that may be given several times, "metric[1].name" is the second one; a
// list "[1, 2]" replaces all values. An empty value removes the field from the text.
struct JobSetting {
  std::string field;
  std::string value;
};
// Throws kInvalidArgument for a text that is not FIELD=VALUE, a field that no job has, and a value
// of another type.
JobSetting ParseJobSetting(const std::string& text);

// Returns the job text with the field set. Comments and the numbers of lines stay. `text` must be a
// job text without mistakes. Throws kInvalidArgument for a message of the path that the text gives
// several times without an index, and for an index beyond them.
std::string WithJobSetting(std::string_view text, const JobSetting& setting);

// Reads a job file and sets the fields. The job's text and its errors are those of the changed
// text. JobConfig::settings holds `settings`.
JobConfig ReadJobWith(const std::string& path, const std::vector<std::string>& settings);

}  // namespace coracle::inline internal
