#include <coracle/distribute/part.h>

namespace coracle::inline internal {

Part UnknownPart(const std::string& op_type, const std::string& why) {
  return {.kind = PartKind::kUnknown, .reason = op_type + " " + why};
}

Part EitherPart(const std::string& op_type, const Part& a, const Part& b) {
  if (a.kind == PartKind::kSame && b.kind == PartKind::kSame) return a.drawn ? a : b;
  if (a == b || b.kind == PartKind::kSame) return a;
  if (a.kind == PartKind::kSame) return b;
  if (a.kind == PartKind::kUnknown) return a;
  if (b.kind == PartKind::kUnknown) return b;
  if (a.kind != PartKind::kRows || b.kind != PartKind::kRows || !(a.place == b.place))
    return UnknownPart(op_type, "joins elements that combine differently");
  Part rows = a;
  rows.ragged |= b.ragged;
  return rows;
}

Part DeclaredPart(const std::string& loss_weight) {
  if (loss_weight == "SUM") return {.kind = PartKind::kSum};
  return {.kind = PartKind::kMean, .weight = loss_weight == "ROWS" ? "" : loss_weight};
}

}  // namespace coracle::inline internal
