#include <coracle/framework/base/crc32c.h>

#include <array>
#include <bit>
#include <cstring>

namespace coracle::inline internal {
namespace {

constexpr uint32_t kReflected = 0x82F63B78;

// tables[k][b]: how a byte b that is followed by k bytes changes the checksum.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kReflected : 0);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b)
      tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 255];
  return tables;
}

constexpr Tables kTables = MakeTables();

uint32_t Byte(uint32_t crc, char byte) {
  return (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(byte)) & 255];
}

}  // namespace

uint32_t Crc32c(std::string_view bytes, uint32_t crc) {
  crc = ~crc;
  if constexpr (std::endian::native == std::endian::little) {
    for (; bytes.size() >= 8; bytes.remove_prefix(8)) {  // eight table look-ups at a time
      uint64_t word;
      std::memcpy(&word, bytes.data(), 8);
      word ^= crc;
      crc = 0;
      for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 255];
    }
  }
  for (char byte : bytes) crc = Byte(crc, byte);
  return ~crc;
}

}  // namespace coracle::inline internal
