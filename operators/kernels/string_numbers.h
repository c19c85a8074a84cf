#pragma once
// Numbers as text and back, for tensors of strings.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>

namespace coracle::inline internal {

// The shortest text that gives the number again, in the form of Python's str: "3", "1.5", "2.0",
// "1e-05", "inf", "nan"; a bool is "0" or "1". Makes the strings in the arena of the run.
// Throws kUnimplemented for complex elements.
void NumbersToStrings(DType dtype, const void* from, int64_t n, StringRef* to);

// The numbers that the texts spell, with spaces around them: integers, decimal fractions with or
// without an exponent, "inf", "infinity" and "nan" in any case and with a sign. An integer type
// takes a fraction truncated, and what is out of its range saturated. Throws kInvalidArgument for
// any other text, kUnimplemented for complex elements.
void StringsToNumbers(const StringRef* from, int64_t n, DType dtype, void* to);

}  // namespace coracle::inline internal
