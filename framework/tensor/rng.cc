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
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), salt_[0],
                   salt_[1]};
  uint32_t k0 = key_[0], k1 = key_[1];
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0;
    uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
    c[1] = static_cast<uint32_t>(p1);
    c[3] = static_cast<uint32_t>(p0);
    c[0] = n0;
    c[2] = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c[0], c[1], c[2], c[3]};
}

void Philox::Blocks(uint64_t first, int64_t count, uint32_t* words) const {
  constexpr int64_t kLanes = 8;  // side by side, so that the compiler uses vector instructions
  int64_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      const uint64_t counter = first + static_cast<uint64_t>(done + i);
      c0[i] = static_cast<uint32_t>(counter);
      c1[i] = static_cast<uint32_t>(counter >> 32);
      c2[i] = salt_[0];
      c3[i] = salt_[1];
    }
    uint32_t k0 = key_[0], k1 = key_[1];
    for (int round = 0; round < 10; ++round) {
      for (int64_t i = 0; i < kLanes; ++i) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * c0[i], p1 = uint64_t{0xCD9E8D57u} * c2[i];
        c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
        c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
        c1[i] = static_cast<uint32_t>(p1);
        c3[i] = static_cast<uint32_t>(p0);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int64_t i = 0; i < kLanes; ++i) {
      uint32_t* out = words + 4 * (done + i);
      out[0] = c0[i], out[1] = c1[i], out[2] = c2[i], out[3] = c3[i];
    }
  }
  for (; done < count; ++done) {
    const auto block = Block(first + static_cast<uint64_t>(done));
    for (int k = 0; k < 4; ++k) words[4 * done + k] = block[static_cast<size_t>(k)];
  }
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
