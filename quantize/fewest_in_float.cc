#include <coracle/quantize/quantize.h>

#include <algorithm>

namespace coracle::inline internal {

std::set<std::string> FewestInFloat(
    const std::vector<std::string>& order, double max_loss,
    const std::function<double(const std::set<std::string>& in_float)>& loss) {
  const auto first = [&](size_t n) {
    return std::set<std::string>(order.begin(), order.begin() + static_cast<ptrdiff_t>(n));
  };
  // A nan is not good.
  const auto is_good = [&](const std::set<std::string>& names) { return loss(names) <= max_loss; };
  if (order.empty() || is_good({})) return {};
  size_t bad = 0, good = 1;
  while (good < order.size() && !is_good(first(good))) {
    bad = good;
    good = std::min(order.size(), 2 * good);
  }
  if (good >= order.size()) good = order.size();
  while (good - bad > 1) {
    const size_t middle = bad + (good - bad) / 2;
    (is_good(first(middle)) ? good : bad) = middle;
  }
  std::set<std::string> names = first(good);
  // The layer at the end of the list was needed; the others may not be, beginning with those that
  // lose least.
  for (size_t i = good - 1; i-- > 0 && names.size() > 1;) {
    std::set<std::string> fewer = names;
    fewer.erase(order[i]);
    if (is_good(fewer)) names = std::move(fewer);
  }
  return names;
}

}  // namespace coracle::inline internal
