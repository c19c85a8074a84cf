#pragma once
// Work of the fuzz targets on any program that a reader accepted.

#include <coracle/framework/ir/program.h>

#include <stdexcept>

namespace coracle {

inline void Require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// An error is one line, and not a defect of Coracle (else it is thrown on).
void CheckError(const Error& error);

// Runs `read`; an Error is its right to refuse the input, a defect is not.
template <class F>
void Refusable(F&& read) {
  try {
    read();
  } catch (const Error& error) {
    CheckError(error);
  }
}

// Writes, reads again, verifies, prints and copies; differentiates and rewrites what
// has no problems.
void UseProgram(const ProgramDesc& program);

}  // namespace coracle
