#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/quantize/quantized_elementwise.h>

namespace coracle::quantized_mul_op {

void Register(OpRegistry& ops) { ops.Add(QuantizedBinaryOp(QuantizedBinary::kMul)); }

}  // namespace coracle::quantized_mul_op
