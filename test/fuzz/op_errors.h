#pragma once
// Runs each op of a case with fast kernels, with reference kernels, and with reference kernels in
// double, and measures by how much the results differ. docs/numbers.md explains the rule.

#include <coracle/test/fuzz/op_case.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// A difference that is not a matter of rounding: the first case that shows it, and their number.
struct OpDefect {
  uint64_t cases = 0;
  OpCaseId first;  // its type may differ from the op's: a gradient op
  std::string text;
};

// What was found about the results of one op type for operands of one dtype.
struct OpErrors {
  uint64_t cases = 0, elements = 0, flushed = 0;
  bool measured = false;       // some results are floating-point
  double fast = 0, plain = 0;  // worst errors against double
  OpDefect worst_fast, worst_plain;
  std::map<std::string, OpDefect> defects;
};

// Thread-safe.
class OpErrorTable {
 public:
  using Key = std::pair<std::string, DType>;

  // Runs the case that DrawOpCase(id) makes. False: it makes none.
  bool Run(const OpCaseId& id);

  std::map<Key, OpErrors> rows() const;
  uint64_t cases() const;

 private:
  mutable std::mutex mutex_;
  std::map<Key, OpErrors> rows_;
  uint64_t cases_ = 0;
};

}  // namespace coracle
