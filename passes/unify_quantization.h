#pragma once
// The parts of the pass unify_quantization. Internal to passes/.

#include <coracle/passes/pass.h>

#include <string>

namespace coracle::inline internal {

// Sums of integers that are multiplied by their scales become products of dequantized values.
void RaiseSums(ProgramDesc& program, const PassContext& context);

// Paddle's fake_quantize, fake_dequantize, quantize_linear and dequantize_linear.
void RaisePaddleQuantization(ProgramDesc& program, const PassContext& context);
// Why such an op was not replaced; "" for any other op.
std::string WhyNotUnified(const OpDesc& op, const PassContext& context);

// oneDNN's quantize, dequantize and requantize, whose scales are attrs.
void RaiseOneDnnQuantization(ProgramDesc& program, const PassContext& context);

}  // namespace coracle::inline internal
