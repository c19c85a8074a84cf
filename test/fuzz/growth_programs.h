#pragma once
// Programs of any size, in shapes that make careless algorithms slow.

#include <coracle/framework/ir/program.h>

#include <cstddef>
#include <string>
#include <vector>

namespace coracle {

struct ProgramShape {
  const char* name;
  ProgramDesc (*make)(size_t n);  // about n ops, blocks, slots or attrs
  // explain-gradient shows the gradient of `of` by `wrt`.
  const char* of;
  const char* wrt;
};

// All shapes. Each has the variables x, which nothing writes, and `loss`, of one element.
const std::vector<ProgramShape>& ProgramShapes();

// A program of the shape with about that many bytes when it is written.
ProgramDesc ProgramOfSize(const ProgramShape& shape, size_t bytes);

}  // namespace coracle
