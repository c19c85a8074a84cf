#pragma once
// Where generated programs take their decisions from: the numbers of a seed, or the bytes
// of a fuzzer.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace coracle {

class Choices {
 public:
  explicit Choices(uint64_t seed) : state_(seed) {}
  // All choices are 0 when the bytes are used up.
  explicit Choices(std::string_view bytes) : bytes_(bytes), from_bytes_(true) {}

  // The bytes are used up; never for a seed.
  bool empty() const { return from_bytes_ && bytes_.empty(); }

  // A number in [0, n). REQUIRES: n > 0.
  size_t Below(size_t n) {
    if (!from_bytes_) return static_cast<size_t>(Next() % n);
    size_t value = Byte();
    if (n > 256) value = value << 8 | Byte();
    return value % n;
  }
  bool OneIn(size_t n) { return Below(n) == n - 1; }
  template <class T, size_t N>
  T Of(const T (&table)[N]) {
    return table[Below(N)];
  }
  template <class T>
  const T& Of(const std::vector<T>& table) {
    return table[Below(table.size())];
  }

 private:
  // splitmix64
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  size_t Byte() {
    if (bytes_.empty()) return 0;
    const auto byte = static_cast<unsigned char>(bytes_[0]);
    bytes_.remove_prefix(1);
    return byte;
  }

  uint64_t state_ = 0;
  std::string_view bytes_;
  bool from_bytes_ = false;
};

}  // namespace coracle
