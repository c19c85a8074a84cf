#pragma once
// What job texts may say, from proto/job.proto and the field tables of optimizers, schedules,
// clips, regularizers and averages.

#include <coracle/layers/text_help.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// The optimizers, schedules, clips, regularizers and averages of that name, or else the field.
std::vector<TextEntry> JobKindEntries(const std::string& name);

// The field at a path: "job", "job.batch_size", "job.train.csv.file". Throws kNotFound with the
// nearest name.
TextEntry JobField(std::string_view path);
// All paths below `path` by one name; empty for an unknown one.
std::vector<std::string> JobFieldsBelow(std::string_view path);

}  // namespace coracle
