#pragma once
// A hash that shows whether bytes have changed.

#include <cstddef>
#include <cstdint>

namespace coracle::inline internal {

// 64 bits. Two arrays of the same size that differ in a single word of eight bytes always have
// different fingerprints; other different arrays have equal ones with probability 2^-64. As fast as
// reading memory.
uint64_t Fingerprint(const void* data, size_t size);

}  // namespace coracle::inline internal
