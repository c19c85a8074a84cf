#pragma once
// One op of the registry at random, its gradient ops, and values for all that they read: ordinary
// numbers, and numbers at the ends of their types.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/test/fuzz/choices.h>

#include <cstdint>
#include <optional>
#include <string>

namespace coracle {

// The numbers of a floating-point type.
struct FloatRange {
  double epsilon;   // between 1 and the next number
  double smallest;  // above 0, subnormal
  double normal;    // the smallest that is not subnormal
  double largest;
};
// REQUIRES: IsFloating(dtype).
FloatRange RangeOf(DType dtype);

struct OpCase {
  ProgramDesc program;  // the op, and the ops of its gradient, if it has one
  VarValues values;     // of what the program reads before it writes it
  DType dtype;          // of the operands
  std::string numbers;  // the class of their values: "huge", "nan", ...
};

// A case: the type and the seed decide the shapes, attrs and dtype; `filling` then decides the
// values, of which there are as many fillings as wanted.
struct OpCaseId {
  std::string type;
  uint64_t seed = 1, filling = 0;
};
// The options of op_numbers that repeat it: "--types=softmax --seed=17".
std::string ToOptions(const OpCaseId& id);

// The same for the same id. nullopt: nothing that the op's shape rule accepts was found.
std::optional<OpCase> DrawOpCase(const OpCaseId& id);

}  // namespace coracle
