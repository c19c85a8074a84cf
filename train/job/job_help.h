#pragma once
// The documentation of job text, from the field tables of a job, of optimizers, schedules, clips
// and regularizers.

#include <coracle/layers/text_help.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// Finds the optimizers, schedules, clips, regularizers and averages with this name, else the field.
std::vector<TextEntry> JobKindEntries(const std::string& name);

// Finds the field at a path, such as "job", "job.batch_size" or "job.train.csv.file". Throws
// kNotFound with the nearest name.
TextEntry JobField(std::string_view path);
// All paths in `path` that end in this name; empty for an unknown name.
std::vector<std::string> JobFieldsBelow(std::string_view path);

}  // namespace coracle::inline internal
