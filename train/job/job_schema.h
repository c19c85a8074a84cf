#pragma once
// The schema of job text: proto/job.proto and what is made at run time, from the field tables of
// optimizers, schedules, clips and averages, those that users registered among them.

#include <coracle/layers/internal/schema_writer.h>

#include <memory>

namespace coracle {

// Made anew after something was registered.
std::shared_ptr<const SchemaPool> CurrentJobSchema();

}  // namespace coracle
