#pragma once
// docs/numbers.md: the page that op_numbers writes, and that a test reads.

#include <coracle/test/fuzz/op_errors.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace coracle {

using OpErrorRows = std::map<OpErrorTable::Key, OpErrors>;

// The instruction sets of this machine on which the choice of fast kernels depends, with Linux's
// names: "avx2, avx512f". "none" if there are none of them.
std::string InstructionSets();

std::string NumbersPage(const OpErrorRows& rows, uint64_t cases);

// What the page says.
struct NumbersLimits {
  struct Row {
    std::optional<double> fast, plain;  // nullopt: "-"
  };
  std::map<std::pair<std::string, std::string>, Row> rows;    // by op and dtype
  std::set<std::pair<std::string, std::string>> differences;  // (op, kind)
  std::string instruction_sets;                               // of the fast kernels
};
NumbersLimits ReadNumbersPage(const std::string& text);

}  // namespace coracle
