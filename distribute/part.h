#pragma once
// Part: how the values that the ranks compute from their rows combine to the value of the whole
// batch. docs/distribute.md has the table of rules. Internal to distribute/.

#include <cstdint>
#include <string>

namespace coracle::inline internal {

enum class PartKind : uint8_t {
  kSame,     // equal on all ranks
  kRows,     // the whole is the rows of all parts, one part after the other
  kMean,     // the whole is the mean of the parts, by their weights
  kSum,      // the whole is the sum of the parts
  kUnknown,  // no rule is known
};

// Where a variable has the rows of the batch. For rows [N, 3]:
//   transpose -> [3, N]            axis 1
//   reshape [T, N, 3] -> [T*N, 3]  axis 0, folded T
//   reshape [N, T, 3] -> [N*T, 3]  axis 0, each T
struct RowPlace {
  int axis = 0;
  // The dimension holds all rows this many times: [time, rows, ...] as [time * rows, ...].
  int64_t folded = 1;
  // Each row has this many indices in sequence: [rows, time, ...] as [rows * time, ...].
  int64_t each = 1;
  // The output of the op that repeated the rows, or "". Two places with the same output have their
  // rows in the same order. `folded` says how often the rows were repeated.
  std::string repeated = {};

  int64_t indices() const { return folded * each; }  // of a row
  bool SameOrder(const RowPlace& other) const {
    return folded == other.folded && each == other.each && repeated == other.repeated;
  }
  bool operator==(const RowPlace&) const = default;
};

struct Part {
  PartKind kind = PartKind::kSame;
  RowPlace place = {};  // of kRows
  // Of kRows: the number of elements is not proportional to the number of rows.
  bool ragged = false;
  // Of kMean: the variable whose elements count, or if it is a sum over the rows, its value. "":
  // the rows of the batch count.
  std::string weight = {};
  std::string reason = {};  // of kUnknown: "slice mixes the rows of the batch"
  // Of kSame: random ops made it, so each rank has drawn its own. It weighs like an equal value.
  bool drawn = false;

  bool IsNumber() const { return kind == PartKind::kMean || kind == PartKind::kSum; }
  bool MeanOfRows() const { return kind == PartKind::kMean && weight.empty(); }
  bool operator==(const Part&) const = default;
};

Part UnknownPart(const std::string& op_type, const std::string& why);
// An array whose elements may be either.
Part EitherPart(const std::string& op_type, const Part& a, const Part& b);
// A declared weight: "ROWS", "SUM", or the name of the variable whose elements count.
Part DeclaredPart(const std::string& loss_weight);

}  // namespace coracle::inline internal
