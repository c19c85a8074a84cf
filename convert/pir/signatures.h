#pragma once
// The attributes that ops of Paddle 3 have, with their types, for writing programs.

#include <string>
#include <string_view>
#include <vector>

namespace coracle::pir {

// An attribute of the dialect. Types: b bool, i int, l int64, f float, d double, s text, t data
// type, p place of a device; I, L and F are lists of i, l and f, v is a list of scalars, and A is a
// list of integers whose values may come from a tensor in other ops (IntArray).
struct DialectAttr {
  std::string name;
  char type;
};

// Of an op without the dialect: "conv2d". Operands that are constants are not among them.
std::vector<DialectAttr> AttrsOf(std::string_view op);

// The number of operands of the op where its row lists fewer: optional ones at the end, which no op
// of a ProgramDesc has. Else 0.
int MoreOperandsOf(std::string_view op);

}  // namespace coracle::pir
