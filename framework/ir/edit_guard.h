#pragma once
// EditGuard: the strong guarantee of functions that edit programs.
//
//   std::vector<ParamAndGrad> AppendBackward(const Variable& loss, ...) {
//     const EditGuard guard(loss.program());
//     ...
//
// If an exception ends its scope, the programs return to the state that they had at its beginning.
// Their blocks, ops and variables are then the same objects as before, so handles on them stay
// valid, except for ops that ReleaseOps gave away. Handles on objects made in the scope become
// invalid. A guard counts new objects and copies an older object before its first change, so a
// successful edit costs about as much as without a guard.

#include <coracle/framework/ir/program.h>

#include <memory>

namespace coracle::inline internal {

class EditGuard {
 public:
  // The programs must outlive the guard. Guards may be nested.
  explicit EditGuard(ProgramDesc& program);
  EditGuard(ProgramDesc& main, ProgramDesc& startup);
  ~EditGuard();
  EditGuard(const EditGuard&) = delete;
  EditGuard& operator=(const EditGuard&) = delete;

 private:
  const int exceptions_;  // in flight at the beginning
  std::unique_ptr<EditJournal> main_, startup_;
};

}  // namespace coracle::inline internal
