#include <coracle/framework/base/text.h>
#include <coracle/optimizer/mixed_precision.h>
#include <fmt/format.h>

namespace coracle {

PrecisionLevel ParsePrecisionLevel(const std::string& text) {
  const std::vector<std::string> known = {"O0", "O1", "O2", "O3"};
  for (size_t i = 0; i < known.size(); ++i) {
    if (text == known[i]) return static_cast<PrecisionLevel>(i);
  }
  ThrowInvalid(
      fmt::format("mixed precision: the level must be O0, O1, O2 or O3, got {}", Quote(text)));
}

PrecisionLists DefaultPrecisionLists(const OpRegistry& ops) {
  PrecisionLists lists;
  for (const std::string& type : ops.Types()) {
    const OpPrecision precision = ops.Get(type).precision;
    if (precision == OpPrecision::kLow) lists.white.insert(type);
    if (precision == OpPrecision::kFloat32) lists.black.insert(type);
  }
  return lists;
}

}  // namespace coracle
