#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/detection/nms.h>
#include <coracle/operators/detection/overlap_simd.h>
#include <coracle/operators/kernels/radix_sort.h>

#include <algorithm>

namespace coracle {

void SortByScore(const double* scores, int64_t most, std::vector<int64_t>* indices) {
  const auto all = static_cast<int64_t>(indices->size());
  const int64_t n = most < 0 ? all : std::min(most, all);
  std::vector<PackedWide> packed(static_cast<size_t>(n < all ? all : 2 * all));
  for (size_t k = 0; k < indices->size(); ++k) {
    const int64_t i = (*indices)[k];
    packed[k] = Pack(scores[i], i, true);
    // A nan comes last, unlike among packed elements.
    if (scores[i] != scores[i]) packed[k] |= ~PackedWide{0} << 64;
  }
  PackedWide* best = packed.data();
  if (n < all) {
    if (n > 0) std::nth_element(best, best + (n - 1), best + all);
    std::sort(best, best + n);
  } else if (std::is_sorted(indices->begin(), indices->end())) {
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

// The kept boxes, which a box may not overlap with.
class KeptBoxes {
 public:
  explicit KeptBoxes(double extra) : extra_(extra) {}
  void Add(const double* box) { boxes_.Add({box[0], box[1], box[2], box[3]}, extra_); }
  bool Suppress(const double* corners, double threshold) const {
    if (threshold < 0) return boxes_.size() > 0;  // no overlap is below 0
    const Box box{corners[0], corners[1], corners[2], corners[3]};
    for (int64_t k = 0;; ++k) {
      k = FindOverlap(boxes_, k, box, extra_, threshold);
      if (k == boxes_.size()) return false;
      if (Overlap(boxes_.At(k), box, extra_) > threshold) return true;
    }
  }

 private:
  double extra_;
  BoxColumns boxes_;
};

class KeptPolygons {
 public:
  explicit KeptPolygons(int64_t width) : width_(width) {}
  void Add(const double* polygon) { kept_.push_back(polygon); }
  bool Suppress(const double* polygon, double threshold) const {
    return std::any_of(kept_.begin(), kept_.end(), [&](const double* k) {
      return PolygonOverlap(k, polygon, width_ / 2) > threshold;
    });
  }

 private:
  int64_t width_;
  std::vector<const double*> kept_;
};

template <class Kept>
std::vector<int64_t> Suppress(const NmsOptions& options, const double* boxes,
                              const std::vector<int64_t>& sorted, Kept before) {
  std::vector<int64_t> kept;
  double threshold = options.threshold;
  int64_t compared = 0;
  for (int64_t i : sorted) {
    if (static_cast<int64_t>(kept.size()) >= options.most) break;
    const double* box = boxes + i * options.width;
    if ((compared += static_cast<int64_t>(kept.size())) > (1 << 20)) {
      CheckTimeLimit("suppressing overlapping boxes");
      compared = 0;
    }
    if (before.Suppress(box, threshold)) continue;
    kept.push_back(i);
    before.Add(box);
    if (options.eta < 1 && threshold > 0.5) threshold *= options.eta;
  }
  return kept;
}

}  // namespace

std::vector<int64_t> SuppressNonMaxima(const NmsOptions& options, const double* boxes,
                                       const std::vector<int64_t>& sorted) {
  if (options.width > 4) return Suppress(options, boxes, sorted, KeptPolygons(options.width));
  return Suppress(options, boxes, sorted, KeptBoxes(options.extra));
}

}  // namespace coracle
