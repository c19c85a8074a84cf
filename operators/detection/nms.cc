#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/detection/nms.h>

#include <algorithm>

namespace coracle {

void SortByScore(const double* scores, int64_t most, std::vector<int64_t>* indices) {
  const auto better = [scores](int64_t i, int64_t j) {
    const double a = scores[i], b = scores[j];
    if (a > b || (a == a && b != b)) return true;
    if (b > a || (b == b && a != a)) return false;
    return i < j;
  };
  if (most >= 0 && most < static_cast<int64_t>(indices->size())) {
    std::nth_element(indices->begin(), indices->begin() + most, indices->end(), better);
    indices->resize(static_cast<size_t>(most));
  }
  std::sort(indices->begin(), indices->end(), better);
}

double OverlapOf(const double* a, const double* b, int64_t width, double extra) {
  if (width > 4) return PolygonOverlap(a, b, width / 2);
  return Overlap({a[0], a[1], a[2], a[3]}, {b[0], b[1], b[2], b[3]}, extra);
}

std::vector<int64_t> SuppressNonMaxima(const NmsOptions& options, const double* boxes,
                                       const std::vector<int64_t>& sorted) {
  std::vector<int64_t> kept;
  double threshold = options.threshold;
  int64_t compared = 0;
  for (int64_t i : sorted) {
    if (static_cast<int64_t>(kept.size()) >= options.most) break;
    const double* box = boxes + i * options.width;
    const auto suppresses = [&](int64_t k) {
      const double overlap =
          OverlapOf(boxes + k * options.width, box, options.width, options.extra);
      return overlap > threshold;
    };
    if ((compared += static_cast<int64_t>(kept.size())) > (1 << 20)) {
      CheckTimeLimit("suppressing overlapping boxes");
      compared = 0;
    }
    if (std::any_of(kept.begin(), kept.end(), suppresses)) continue;
    kept.push_back(i);
    if (options.eta < 1 && threshold > 0.5) threshold *= options.eta;
  }
  return kept;
}

}  // namespace coracle
