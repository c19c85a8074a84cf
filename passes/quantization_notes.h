#pragma once
// What the pass fuse_quantized made of a program with quantised values: which ops compute in
// integers, and why others do not.

#include <coracle/framework/ir/program.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

enum class RunsIn {
  kIntegers,
  kConverts,  // from real numbers to integers, or back
  kReals,
};

// An op of the compiled program.
struct QuantizationNote {
  std::string type;
  std::string output;  // its first output
  RunsIn runs_in = RunsIn::kReals;
  // Of an op on real numbers: why it does not compute in integers; "" if all of its values are
  // real numbers.
  std::string reason;
};

// During its lifetime, the pass notes the ops of each program that this thread compiles. Nothing is
// noted of a program without quantised values.
class ScopedQuantizationNotes {
 public:
  ScopedQuantizationNotes();
  ~ScopedQuantizationNotes();
  ScopedQuantizationNotes(const ScopedQuantizationNotes&) = delete;
  ScopedQuantizationNotes& operator=(const ScopedQuantizationNotes&) = delete;

  const std::vector<QuantizationNote>& notes() const { return notes_; }
  static ScopedQuantizationNotes* Current();  // nullptr if there is none
  void Set(std::vector<QuantizationNote> notes) { notes_ = std::move(notes); }

 private:
  ScopedQuantizationNotes* before_;
  std::vector<QuantizationNote> notes_;
};

}  // namespace coracle::inline internal
