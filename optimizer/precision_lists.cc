#include <coracle/optimizer/mixed_precision.h>

namespace coracle {

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
