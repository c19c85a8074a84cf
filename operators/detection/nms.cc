#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/detection/nms.h>
#include <coracle/operators/detection/overlap_simd.h>
#include <coracle/operators/kernels/radix_sort.h>

#include <algorithm>

namespace coracle::inline internal {

void SortByScore(const double* scores, int64_t most, std::vector<int64_t>* indices) {
  const auto all = static_cast<int64_t>(indices->size());
  const int64_t n = most < 0 ? all : std::min(most, all);
  std::vector<PackedWide> packed(static_cast<size_t>(n < all ? all : 2 * all));
  for (size_t k = 0; k < indices->size(); ++k) {
    const int64_t i = (*indices)[k];
    packed[k] = Pack(scores[i], i, true);
    // A nan comes last, unlike in SortKeyOf.
    if (scores[i] != scores[i]) packed[k] |= ~PackedWide{0} << 64;
  }
  PackedWide* best = packed.data();
  if (n < all) {
    if (n > 0) std::nth_element(best, best + (n - 1), best + all);
    std::sort(best, best + n);
  } else if (all <= kLongestSortedLine && std::is_sorted(indices->begin(), indices->end())) {
    best = SortPacked(best, best + all, all);
  } else {
    std::sort(best, best + all);
  }
  indices->resize(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) (*indices)[static_cast<size_t>(k)] = PlaceOf<double>(best[k]);
}

double OverlapOf(const double* a, const double* b, int64_t width, double extra) {
  if (width > 4) return PolygonOverlap(a, b, width / 2);
  return Overlap({a[0], a[1], a[2], a[3]}, {b[0], b[1], b[2], b[3]}, extra);
}

namespace {

// The kept boxes, with which another box must not overlap.
class KeptBoxes {
 public:
  explicit KeptBoxes(const NmsOptions& options) : extra_(options.extra) {}
  int64_t size() const { return boxes_.boxes.size(); }
  void Add(const double* box) { boxes_.Add(BoxOf(box), extra_); }
  // Whether one of the kept boxes [begin, end) suppresses a box.
  bool Suppress(int64_t begin, int64_t end, const double* corners, double threshold) const {
    if (threshold < 0) return begin < end;  // no overlap is below 0
    const Box box = BoxOf(corners);
    for (int64_t k = begin;; ++k) {
      k = FindOverlap(boxes_, k, end, box, extra_, threshold);
      if (k >= end) return false;
      if (Overlap(boxes_.boxes.At(k), box, extra_) > threshold) return true;
    }
  }

 private:
  static Box BoxOf(const double* corners) {
    return {corners[0], corners[1], corners[2], corners[3]};
  }
  double extra_;
  BoundedBoxes boxes_;
};

class KeptPolygons {
 public:
  explicit KeptPolygons(const NmsOptions& options) : width_(options.width) {}
  int64_t size() const { return static_cast<int64_t>(kept_.size()); }
  void Add(const double* polygon) { kept_.push_back(polygon); }
  bool Suppress(int64_t begin, int64_t end, const double* polygon, double threshold) const {
    return std::any_of(kept_.begin() + begin, kept_.begin() + end, [&](const double* k) {
      return PolygonOverlap(k, polygon, width_ / 2) > threshold;
    });
  }

 private:
  int64_t width_;
  std::vector<const double*> kept_;
};

// Processes boxes in blocks. A block is compared with one part of the kept boxes after the other,
// each while it is in the cache, and finally with the boxes kept from the block itself.
template <class Kept>
std::vector<int64_t> Suppress(const NmsOptions& options, const double* boxes,
                              const std::vector<int64_t>& sorted) {
  constexpr int64_t kBlock = 64, kPart = 2048;
  const char* const doing = "suppressing overlapping boxes";
  Kept before(options);
  std::vector<int64_t> kept;
  double threshold = options.threshold;
  // A decreasing threshold is known only when a box is reached.
  const bool sinks = options.eta < 1 && threshold > 0.5;
  int64_t compared = 0;
  const auto count = static_cast<int64_t>(sorted.size());
  const auto box_of = [&](int64_t i) {
    return boxes + sorted[static_cast<size_t>(i)] * options.width;
  };
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t n = std::min(kBlock, count - first), known = sinks ? 0 : before.size();
    bool gone[kBlock] = {};
    for (int64_t part = 0; part < known; part += kPart) {
      const int64_t end = std::min(part + kPart, known);
      for (int64_t i = 0; i < n; ++i)
        gone[i] = gone[i] || before.Suppress(part, end, box_of(first + i), threshold);
      if (end - part == kPart) CheckTimeLimit(doing);
    }
    for (int64_t i = 0; i < n; ++i) {
      if (before.size() >= options.most) return kept;
      if ((compared += before.size()) > (1 << 20)) {
        CheckTimeLimit(doing);
        compared = 0;
      }
      const double* box = box_of(first + i);
      if (gone[i] || before.Suppress(known, before.size(), box, threshold)) continue;
      kept.push_back(sorted[static_cast<size_t>(first + i)]);
      before.Add(box);
      if (options.eta < 1 && threshold > 0.5) threshold *= options.eta;
    }
  }
  return kept;
}

}  // namespace

std::vector<int64_t> SuppressNonMaxima(const NmsOptions& options, const double* boxes,
                                       const std::vector<int64_t>& sorted) {
  if (options.width > 4) return Suppress<KeptPolygons>(options, boxes, sorted);
  return Suppress<KeptBoxes>(options, boxes, sorted);
}

}  // namespace coracle::inline internal
