#pragma once
// Field tables of options that are not registered kinds: the fields that a job text may set.

#include <coracle/framework/ir/fields.h>
#include <coracle/optimizer/lr_schedule.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>

namespace coracle::inline internal {

Fields<PlateauRate::Options> FieldsOf(const PlateauRate::Options&);
Fields<ExponentialMovingAverageOptions> FieldsOf(const ExponentialMovingAverageOptions&);
Fields<ModelAverageOptions> FieldsOf(const ModelAverageOptions&);
Fields<LookaheadOptions> FieldsOf(const LookaheadOptions&);
Fields<GradScalerOptions> FieldsOf(const GradScalerOptions&);

}  // namespace coracle::inline internal
