#pragma once
// What proto/job.proto declares of its fields beside their types: ranges, which must be given, docs
// and examples.

#include <coracle/layers/internal/schema_writer.h>
#include <coracle/train/job/job_node.h>

namespace coracle {

// job.proto with its comments as docs, ranges among them, and with a note for each field.
SchemaWriter DeclaredJob();

// Throws with its place for a field that is absent and must be given, and for a number out of its
// range. `job` is the whole text.
void CheckDeclared(const JobNode& job);

}  // namespace coracle
