#pragma once
// Field tables of options that are no kinds of their own: what a job text may say of them.

#include <coracle/framework/ir/fields.h>
#include <coracle/optimizer/grad_scaler.h>
#include <coracle/optimizer/lr_schedule.h>
#include <coracle/optimizer/weight_average.h>

namespace coracle {

const Fields<PlateauRate::Options>& FieldsOf(const PlateauRate::Options&);
const Fields<ExponentialMovingAverageOptions>& FieldsOf(const ExponentialMovingAverageOptions&);
const Fields<ModelAverageOptions>& FieldsOf(const ModelAverageOptions&);
const Fields<LookaheadOptions>& FieldsOf(const LookaheadOptions&);
const Fields<GradScalerOptions>& FieldsOf(const GradScalerOptions&);

}  // namespace coracle
