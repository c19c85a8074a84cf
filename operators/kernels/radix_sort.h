#pragma once
// Sorts the elements of a line together with their positions. An element and its position are
// packed into one unsigned number, with the key in the upper half and the position in the lower
// half. The order of these numbers is the order of Better (total_order.h): a nan counts as the
// largest, and among equal elements the lower position wins.

#include <coracle/framework/base/resource_limits.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace coracle::inline internal {

__extension__ typedef unsigned __int128 PackedWide;

// The packed form of an element of 4 or 8 bytes.
template <class T>
using Packed = std::conditional_t<sizeof(T) == 4, uint64_t, PackedWide>;
template <class T>
using SortKey = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

// Positions and counts of longer lines do not fit.
constexpr int64_t kLongestSortedLine = std::numeric_limits<uint32_t>::max();

// Ascending keys: a < b exactly if ComesBefore(a, b). Both zeros have the same key, and all nans
// have the same key.
template <class T>
SortKey<T> SortKeyOf(T value) {
  using Key = SortKey<T>;
  constexpr Key kSign = Key{1} << (8 * sizeof(Key) - 1);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<Key>(value) ^ kSign;
  } else {
    const auto bits = std::bit_cast<Key>(value + T(0));  // -0 + 0 is 0
    const Key mask = static_cast<Key>(-(bits >> (8 * sizeof(Key) - 1))) | kSign;
    return value == value ? static_cast<Key>(bits ^ mask) : static_cast<Key>(~Key{0});
  }
}

template <class T>
Packed<T> Pack(T value, int64_t place, bool descending) {
  using Key = SortKey<T>;
  const Key key = static_cast<Key>(SortKeyOf(value) ^ (descending ? ~Key{0} : Key{0}));
  return Packed<T>{key} << (8 * sizeof(Key)) | Packed<T>{static_cast<Key>(place)};
}

template <class T>
int64_t PlaceOf(Packed<T> packed) {
  return static_cast<int64_t>(static_cast<SortKey<T>>(packed));
}

template <class T>
void PackLine(const T* line, int64_t n, int64_t stride, bool descending, Packed<T>* to) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = Pack(line[i], i, descending);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = Pack(line[i * stride], i, descending);
  }
}

// Sorts a[n], whose positions ascend, with b[n] as working memory. Returns the array that holds the
// result. P: Packed<T>. Digits that all keys share need no pass. REQUIRES: n <= kLongestSortedLine.
template <class P>
P* SortPacked(P* a, P* b, int64_t n) {
  constexpr int kDigits = sizeof(P) / 2;  // bytes of a key
  if (n <= (sizeof(P) == 8 ? 40 : 100)) {
    std::sort(a, a + n);
    return a;
  }
  uint32_t counts[kDigits][256] = {};
  for (int64_t i = 0; i < n; ++i) {
    auto key = static_cast<uint64_t>(a[i] >> (4 * sizeof(P)));
    for (int d = 0; d < kDigits; ++d, key >>= 8) ++counts[d][key & 255];
  }
  for (int d = 0; d < kDigits; ++d) {
    const auto shift = 4 * sizeof(P) + 8 * static_cast<size_t>(d);
    uint32_t* count = counts[d];
    if (count[static_cast<size_t>(a[0] >> shift) & 255] == n) continue;
    uint32_t next = 0;
    for (int k = 0; k < 256; ++k) {
      const uint32_t here = count[k];
      count[k] = next;
      next += here;
    }
    for (int64_t i = 0; i < n; ++i) b[count[static_cast<size_t>(a[i] >> shift) & 255]++] = a[i];
    std::swap(a, b);
  }
  return a;
}

// ---- the k best of a line ----

constexpr bool IsFew(int64_t n, int64_t k) {
  return n >= 64 && k < n / 8 && (k <= 16 || k < n / 32);
}

// Number of memory elements that SelectPacked needs; less than n if IsFew.
constexpr int64_t SelectionSize(int64_t n, int64_t k) { return IsFew(n, k) ? 2 * k + 32 : 2 * n; }

namespace detail {

// Whether one of 32 elements may come before `worst` (descending: after it). A nan may.
template <class T>
bool AnyBetter(const T* x, T worst, bool largest) {
  SortKey<T> any = 0;
  if (largest) {
    for (int j = 0; j < 32; ++j) any |= static_cast<SortKey<T>>(!(x[j] <= worst));
  } else {
    for (int j = 0; j < 32; ++j) any |= static_cast<SortKey<T>>(!(x[j] >= worst));
  }
  return any != 0;
}

// Selects few of many elements. Candidates are collected; when the memory is full, all but the k
// best are dropped. Most elements fail the comparison with the worst of these, which tests 32 at
// a time.
template <class T>
Packed<T>* SelectFew(const T* line, int64_t n, int64_t k, bool largest, Packed<T>* found) {
  const int64_t room = SelectionSize(n, k);
  int64_t count = 0;
  Packed<T> limit = ~Packed<T>{0};
  T worst = 0;
  const auto shrink = [&] {
    std::nth_element(found, found + (k - 1), found + count);
    count = k;
    limit = found[k - 1];
    worst = line[PlaceOf<T>(limit)];
  };
  const auto offer = [&](int64_t i) {
    const Packed<T> packed = Pack(line[i], i, largest);
    if (!(packed < limit)) return;
    found[count++] = packed;
    if (count == room) shrink();
  };
  int64_t i = 0;
  for (; i < room; ++i) offer(i);
  for (; i + 32 <= n; i += 32) {
    if (!AnyBetter(line + i, worst, largest)) continue;
    for (int64_t j = i; j < i + 32; ++j) offer(j);
  }
  for (; i < n; ++i) offer(i);
  if (count > k) shrink();
  std::sort(found, found + k);
  return found;
}

// Keeps, in order, the elements of a[n] that may be among the k smallest: the buckets by the
// highest bits of the key, up to the bucket with the k-th. Returns their number.
template <class P>
int64_t KeepFirst(P* a, int64_t n, int64_t k) {
  constexpr int kBits = 12;  // for a float: sign, exponent and three more
  constexpr size_t kShift = 8 * sizeof(P) - kBits;
  if (n < 2048) return n;
  uint32_t counts[1 << kBits] = {};
  for (int64_t i = 0; i < n; ++i) ++counts[static_cast<size_t>(a[i] >> kShift)];
  size_t last = 0;
  for (int64_t upto = counts[0]; upto < k; upto += counts[last]) ++last;
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const P value = a[i];
    a[count] = value;
    count += static_cast<size_t>(value >> kShift) <= last ? 1 : 0;
  }
  return count;
}

}  // namespace detail

// The k best elements of a line, best first: the smallest, or the largest. `memory` has
// SelectionSize(n, k) elements and holds the result. REQUIRES: 1 <= k <= n <= kLongestSortedLine.
template <class T>
Packed<T>* SelectPacked(const T* line, int64_t n, int64_t k, bool largest, Packed<T>* memory) {
  if (IsFew(n, k)) return detail::SelectFew(line, n, k, largest, memory);
  PackLine(line, n, 1, largest, memory);
  if (k <= n / 2) n = detail::KeepFirst(memory, n, k);
  return SortPacked(memory, memory + n, n);
}

// ---- lines of a tensor ----

// The lines of [outer, n, inner] along its middle axis, in groups of at most `lanes` adjacent
// lines, so that each cache line serves several of them. A few parts share the groups, each with
// its own scratch memory.
struct LineGroups {
  int64_t outer, n, inner, lanes;
  int64_t across, groups, parts;  // groups per outer index, and in total

  // REQUIRES: there are elements.
  LineGroups(int64_t outer_size, int64_t line, int64_t inner_size, int64_t most)
      : outer(outer_size),
        n(line),
        inner(inner_size),
        lanes(std::min(most, inner_size)),
        across((inner + lanes - 1) / lanes),
        groups(outer * across),
        parts(std::clamp<int64_t>(std::min<int64_t>(NumThreads(), outer * n * inner / 4096), 1,
                                  groups)) {}

  // Calls body(o, i, count, part) for the lines i, .., i + count - 1 of outer index o; at most one
  // thread at a time uses a part.
  template <class Body>
  void ForEach(Body&& body) const {
    ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const int64_t per = groups / parts, more = groups % parts;
        const int64_t first = part * per + std::min(part, more);
        const int64_t last = first + per + (part < more ? 1 : 0);
        for (int64_t g = first; g < last; ++g) {
          const int64_t i = g % across * lanes;
          body(g / across, i, std::min(lanes, inner - i), part);
        }
      }
    });
  }
};

}  // namespace coracle::inline internal
