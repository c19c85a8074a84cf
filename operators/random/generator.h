#pragma once
// The random numbers of an op.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/rng.h>

#include <cstdint>

namespace coracle::inline internal {

// Seeded by attr seed if it is not 0, else by the program.
class Generator {
 public:
  explicit Generator(const PrepareContext& ctx)
      : Generator(ctx, static_cast<uint64_t>(static_cast<int64_t>(ctx.Attr<int32_t>("seed")))) {}
  // Seeded by the program if `seed` is 0.
  Generator(const PrepareContext& ctx, uint64_t seed)
      : seed_(seed), stream_(ctx.RandomStream("Out")) {}
  Philox operator()(const Workspace& ws) const {
    return Philox(seed_ != 0 ? seed_ : ws.seed(), stream_, ws.step());
  }

 private:
  uint64_t seed_, stream_;
};

// Draw `index` of the stream as an integer, uniform in [0, limit). REQUIRES: 0 < limit <= 2^53.
inline int64_t UniformBelow(const Philox& random, uint64_t index, int64_t limit) {
  const double draw = random.UniformDouble(index) * static_cast<double>(limit);
  const auto value = static_cast<int64_t>(draw);
  return value < limit ? value : limit - 1;  // the product may be rounded up
}

// A random order of 0 .. count - 1, by Fisher and Yates. Uses draws 0 .. count - 1.
template <class T>
void Shuffle(const Philox& random, int64_t count, T* order) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t j = UniformBelow(random, static_cast<uint64_t>(i), i + 1);
    order[i] = order[j];
    order[j] = static_cast<T>(i);
  }
}

}  // namespace coracle::inline internal
