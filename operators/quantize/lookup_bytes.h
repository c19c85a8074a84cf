#pragma once
// Bytes replaced by entries of a table of 256, as fast as the machine can.

#include <array>
#include <cstdint>

namespace coracle::inline internal {

// The entries for the bytes 0 to 255.
using ByteTable = std::array<uint8_t, 256>;

// A table whose entries are in the order of numbers: with `is_signed`, those of int8, -128 first.
ByteTable TableInByteOrder(const uint8_t* entries, bool is_signed);

// out[i] = table[x[i]]. `out` may be `x`.
void LookupBytes(const uint8_t* x, const ByteTable& table, uint8_t* out, int64_t n);

}  // namespace coracle::inline internal
