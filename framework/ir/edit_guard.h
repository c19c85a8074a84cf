#pragma once
// EditGuard: the strong guarantee of functions that edit programs.
//
//   std::vector<ParamAndGrad> AppendBackward(const Variable& loss, ...) {
//     const EditGuard guard(loss.program());
//     ...
//
// When an exception ends its scope, the programs are as they were at its beginning, and so are the
// handles on what was in them: blocks, ops and variables are the same objects (except ops that
// ReleaseOps gave away). What is made anew is only counted, and an older object is copied before
// its first change, so that edits that succeed cost about what they did.

#include <coracle/framework/ir/program.h>

#include <memory>

namespace coracle {

class EditGuard {
 public:
  // The programs must outlive it. Guards may be inside each other.
  explicit EditGuard(ProgramDesc& program);
  EditGuard(ProgramDesc& main, ProgramDesc& startup);
  ~EditGuard();
  EditGuard(const EditGuard&) = delete;
  EditGuard& operator=(const EditGuard&) = delete;

 private:
  void Watch(ProgramDesc& program, std::unique_ptr<internal::EditJournal>* journal);

  const int exceptions_;  // that were under way at the beginning
  std::unique_ptr<internal::EditJournal> main_, startup_;
};

}  // namespace coracle
