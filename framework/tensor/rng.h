#pragma once
// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). A draw is a function of (seed, stream, step, index)
// alone: neither threads nor the order of ops change it.

#include <array>
#include <cstdint>
#include <string_view>

namespace coracle {

// Finalised FNV-1a hash of the text. A random op's stream is the hash of its output
// variable's name.
uint64_t HashName(std::string_view name);

// The step for random ops of a sub-block in its run number `run`, within a run of the enclosing
// block with step `step`.
uint64_t InnerStep(uint64_t step, int block, uint64_t run);

class Philox {
 public:
  Philox(uint64_t seed, uint64_t stream, uint64_t step);

  // The four 32-bit words of block `counter`: draws 4 * counter .. 4 * counter + 3 of the stream.
  std::array<uint32_t, 4> Block(uint64_t counter) const;
  // Blocks first, first + 1, ...: words[4 * i + k] = Block(first + i)[k]. Faster than single calls.
  void Blocks(uint64_t first, int64_t count, uint32_t* words) const;

  // Element `index` of the stream: uniform in [0, 1), multiples of 2^-24 (float) or 2^-53 (double).
  float UniformFloat(uint64_t index) const;
  double UniformDouble(uint64_t index) const;
  // Element `index` of the stream: standard normal (Box and Muller).
  double Normal(uint64_t index) const;

 private:
  uint32_t key_[2];
  uint32_t salt_[2];
};

// Uniform in [0, 1) from one word.
inline float ToUnitFloat(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

}  // namespace coracle
