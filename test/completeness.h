#pragma once
// What a run of all op tests must have done; test/op_test.cc checks it at the end.

#include <string>

namespace coracle {

// The error message names the constraint: "load.C1". For tests that make their programs themselves.
void ExpectConstraint(const std::string& message, const std::string& id);

// The gradient rule of a unary op gives zeros of X's shape, whatever Out@GRAD is.
void CheckZeroGradient(const std::string& type);
// The gradient of an op is checked elsewhere: `test` says in which file.
void GradientIsCheckedIn(const std::string& type, const std::string& test);

}  // namespace coracle
