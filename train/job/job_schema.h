#pragma once
// The schema of job text, made at run time from the field tables of jobs, optimizers, schedules and
// clips, including those registered by users.

#include <coracle/layers/internal/schema_writer.h>

#include <memory>

namespace coracle::inline internal {

// The current schema. It is rebuilt after a registration.
std::shared_ptr<const SchemaPool> CurrentJobSchema();

}  // namespace coracle::inline internal
