#pragma once
// Programs as text for people: one line per op, parameters with their sizes, the order of a
// training step.

#include <coracle/framework/ir/program.h>

#include <functional>
#include <string>

namespace coracle {

// Empty functions keep, and hide, nothing in particular.
struct PrintOptions {
  int block = -1;  // print this one only
  // Ops and variables that are printed. While one of the two is set, sections that came out empty
  // and the summary of the program are left out.
  std::function<bool(const OpDesc& op)> keep_op = {};
  std::function<bool(const VarDesc& var)> keep_var = {};
  // True for an attr that says nothing (it has its default value). The attrs that every op may
  // carry (op_role, op_callstack, ...) are never shown.
  std::function<bool(const OpDesc& op, const NamedAttr& attr)> hide_attr = {};
};

// Linear in the size of the program; safe on programs that were never verified. Names with
// characters that a terminal would act on come out quoted and escaped.
std::string PrintProgram(const ProgramDesc& program, const PrintOptions& options = {});

// "Out=h:float32[-1,500] = mul(X=x, Y=w) {x_num_col_dims=2}", without a line end.
std::string PrintOp(const OpDesc& op, const PrintOptions& options = {});

}  // namespace coracle
