#pragma once
// Reads messages of a job text into the structs of their field tables.

#include <coracle/framework/ir/field_places.h>
#include <coracle/framework/ir/fields.h>
#include <coracle/train/job/job_node.h>

namespace coracle::inline internal {

// Sets the given fields of `options` that hold no fields. Throws for a number out of its range.
// `who` begins the errors.
void ReadValues(const JobNode& at, const FieldTable& table, const std::string& who, void* options);
template <class Options>
Options ReadOptions(const JobNode& at, const Fields<Options>& table, const std::string& who = "") {
  Options options;
  ReadValues(at, table, who, &options);
  return options;
}

// Sets the given fields of `options`, a struct of the table, and applies the table's rules. `name`
// is the user's word for the message, and `given` has its places. Throws kInvalidArgument for a
// missing required field, a missing choice, a number out of range, and the errors of the rules.
void ReadFields(const JobNode& at, const FieldTable& table, const std::string& name,
                const FieldPlaces& given, void* options);

}  // namespace coracle::inline internal
