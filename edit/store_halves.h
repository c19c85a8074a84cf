#pragma once
// Stores weights in 16 bits, so that a model's file is smaller.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

struct StoredHalves {
  size_t stored = 0;                           // weights that have 16 bits now
  uint64_t bytes_before = 0, bytes_after = 0;  // of all parameters that have a value
  // Weights that stay float32, each with the reason.
  std::vector<std::pair<std::string, std::string>> kept = {};
};

// Rounds float32 parameters that no op writes to float16 or bfloat16. Each becomes a parameter of
// 16 bits and a cast at the start of the root block, which computes the float32 variable of the
// old name; a compiler that knows the parameters computes the casts once. Parameters of fewer than
// 1024 elements stay as they are, and so do those which the rounding would harm: if a finite number
// became infinite, or if the signal-to-noise ratio fell below 60 dB (float16: numbers below 6.1e-5
// lose digits) or 40 dB (bfloat16). Throws kInvalidArgument for another dtype.
StoredHalves StoreInHalves(ProgramDesc& program, Scope& parameters, DType half,
                           const OpRegistry& ops);

}  // namespace coracle::inline internal
