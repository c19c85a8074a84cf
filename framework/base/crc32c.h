#pragma once
// CRC-32C (Castagnoli): polynomial 0x1EDC6F41, reflected, initial value and final xor all ones, as
// in RFC 3720, appendix B.4. It finds every change of up to 32 consecutive bits.

#include <cstdint>
#include <string_view>

namespace coracle::inline internal {

// Extends `crc`, the checksum of the preceding bytes (0: none), by `bytes`.
uint32_t Crc32c(std::string_view bytes, uint32_t crc = 0);

}  // namespace coracle::inline internal
