#pragma once
// The declarations of proto/job.proto about its fields, apart from their types: ranges, required
// fields, docs and examples.

#include <coracle/layers/internal/schema_writer.h>
#include <coracle/train/job/job_node.h>

namespace coracle {

// Returns job.proto with a note for each field. Its comments are the docs and include the ranges.
SchemaWriter DeclaredJob();

// Throws with the place in the text for a missing required field and for a number out of its range.
// `job` is the whole text.
void CheckDeclared(const JobNode& job);

}  // namespace coracle
