#pragma once
// A total order of elements, for sorts.

#include <cstdint>

namespace coracle::inline internal {

// Whether a comes before b in ascending order: a nan counts as the largest value.
template <class T>
bool ComesBefore(T a, T b) {
  return a < b || (a == a && b != b);
}

// Whether `value` replaces the largest element so far. Among equal elements the first one stays,
// and a nan is larger than every number: the rule of all maxima and minima.
template <class T>
bool Exceeds(T value, T largest) {
  return (value > largest) | ((value != value) & (largest == largest));
}

// Whether element i of a strided row comes before element j, best first. Among equal elements the
// lower index wins.
template <class T>
struct Better {
  const T* row;
  int64_t stride;
  bool largest;
  bool operator()(int64_t i, int64_t j) const {
    const T a = row[i * stride], b = row[j * stride];
    const bool less = ComesBefore(a, b), greater = ComesBefore(b, a);
    if (less || greater) return largest ? greater : less;
    return i < j;
  }
};

}  // namespace coracle::inline internal
