#pragma once
// The schema of job text: proto/job.proto and the messages made at run time from the field tables
// of optimizers, schedules, clips and averages, including those registered by users.

#include <coracle/layers/internal/schema_writer.h>

#include <memory>

namespace coracle {

// The current schema. It is rebuilt after a registration.
std::shared_ptr<const SchemaPool> CurrentJobSchema();

}  // namespace coracle
