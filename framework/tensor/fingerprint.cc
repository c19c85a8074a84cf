#include <coracle/framework/tensor/fingerprint.h>

#include <array>
#include <cstring>

namespace coracle::inline internal {
namespace {

// Every step is one-to-one, so a change of one word always shows; several changes cancel out with
// probability 2^-64.
uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

// Eight chains, since successive multiplications of one chain wait for each other.
using Words = std::array<uint64_t, 8>;

void Mix(Words& chains, const char* bytes, size_t size) {
  Words words = {};
  std::memcpy(words.data(), bytes, size);
  for (size_t i = 0; i < chains.size(); ++i) chains[i] = Mix(chains[i], words[i]);
}

}  // namespace

uint64_t Fingerprint(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  Words chains = {size, 1, 2, 3, 4, 5, 6, 7};
  size_t at = 0;
  for (; at + sizeof chains <= size; at += sizeof chains) Mix(chains, bytes + at, sizeof chains);
  if (at < size) Mix(chains, bytes + at, size - at);
  for (size_t i = 1; i < chains.size(); ++i) chains[0] = Mix(chains[0], chains[i]);
  return chains[0];
}

}  // namespace coracle::inline internal
