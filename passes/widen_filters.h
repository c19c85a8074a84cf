#pragma once
// Filters of convolutions in float32 beside images of 16 bits. Internal to passes/.

#include <coracle/passes/pass.h>

namespace coracle {

// Where convolutions of bfloat16 run on the float32 kernels (BFloat16ProductsPay), the casts of
// their filters, and back of the filters' gradients, only lose digits and time: the convolutions
// read the float32 filters and write float32 gradients.
void WidenFilters(ProgramDesc& program, const PassContext& context);

}  // namespace coracle
