#pragma once
// Requirements on a run of all op tests; test/completeness.cc checks them at the end.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/kernel/interpreter.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle {

// "[clip.C1]" in a message: a test has provoked "clip.C1".
void NoteConstraint(const std::string& message);
// A test has checked the gradient of that op type.
void NoteCheckedGradient(const std::string& type);

// A test has checked the expansion of that op type.
void NoteExpansion(const std::string& type);

// The error message names the constraint: "load.C1". For tests that make their programs themselves.
void ExpectConstraint(const std::string& message, const std::string& id);

// The gradient rule of a unary op gives zeros of X's shape, whatever Out@GRAD is.
void CheckZeroGradient(const std::string& type);
// The gradient of an op is checked elsewhere: `test` says in which file.
void GradientIsCheckedIn(const std::string& type, const std::string& test);
// A test of this run checks gradients of the op's gradients, or there is a reason why none does.
void HigherGradientsAreChecked(const std::string& type);

// Infers an op whose inputs are of these types, "X.0", "X.1" ... for slot X, with a variable in
// each output slot, and expects it to be refused by the constraint.
void ExpectRefused(const std::string& type,
                   const std::vector<std::pair<std::string, VarMeta>>& inputs,
                   const AttrList& attrs, const std::string& id);

// Gradients of `loss`, one element in double, with respect to variables of `inputs`, against
// central differences; by the interpreter and by the executor. Counts as the gradient check of
// `types`, which the program must have.
void CheckProgramGradient(const std::vector<std::string>& types, const ProgramDesc& program,
                          const std::string& loss, const std::vector<std::string>& wrt,
                          const VarValues& inputs);

}  // namespace coracle
