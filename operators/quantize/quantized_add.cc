#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/quantize/quantized_elementwise.h>

namespace coracle::quantized_add_op {

void Register(OpRegistry& ops) { ops.Add(QuantizedBinaryOp(QuantizedBinary::kAdd)); }

}  // namespace coracle::quantized_add_op
