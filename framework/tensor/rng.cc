#include <coracle/framework/tensor/philox_blocks.h>
#include <coracle/framework/tensor/rng.h>

#include <cmath>
#include <numbers>

namespace coracle {
namespace {

uint64_t Mix(uint64_t x) {  // the finaliser of SplitMix64
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return Mix(hash);
}

uint64_t InnerStep(uint64_t step, int block, uint64_t run) {
  return Mix(Mix(step + 0x9e3779b97f4a7c15u) ^ (static_cast<uint64_t>(block) << 48) ^ (run + 1));
}

Philox::Philox(uint64_t seed, uint64_t stream, uint64_t step) {
  uint64_t key = Mix(seed + 0x9e3779b97f4a7c15u) ^ stream;
  key_[0] = static_cast<uint32_t>(key);
  key_[1] = static_cast<uint32_t>(key >> 32);
  salt_[0] = static_cast<uint32_t>(step);
  salt_[1] = static_cast<uint32_t>(step >> 32);
}

std::array<uint32_t, 4> Philox::Block(uint64_t counter) const {
  std::array<uint32_t, 4> words;
  PhiloxBlock(key_, salt_, counter, words.data());
  return words;
}

void Philox::Blocks(uint64_t first, int64_t count, uint32_t* words) const {
  PhiloxBlocks(key_, salt_, first, count, words);
}

float Philox::UniformFloat(uint64_t index) const {
  return ToUnitFloat(Block(index / 4)[index % 4]);
}

double Philox::UniformDouble(uint64_t index) const {
  auto words = Block(index / 2);
  uint64_t bits = (uint64_t{words[index % 2 * 2]} << 32) | words[index % 2 * 2 + 1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

double Philox::Normal(uint64_t index) const {
  auto words = Block(index / 2);
  // u in (0, 1], so that the logarithm is finite.
  double u = (static_cast<double>(words[0]) + 1.0) * 0x1p-32;
  double v = static_cast<double>(words[1]) * 0x1p-32;
  double radius = std::sqrt(-2.0 * std::log(u));
  double angle = 2.0 * std::numbers::pi * v;
  return index % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle);
}

}  // namespace coracle
