#pragma once
// Observes the outputs of the ops of a running program, for tools that record values or compare two
// runs. Costs no look-ups without an observer.

#include <coracle/framework/tensor/tensor.h>

#include <functional>
#include <string>

namespace coracle::inline internal {

// A variable after an op that writes it has run.
struct WrittenValue {
  const std::string& var;
  const VarValue& value;  // a dense tensor may be a view that is valid only during the call
  bool in_root_block;     // written by an op of the root block
};
using ValueObserver = std::function<void(const WrittenValue&)>;

// During its lifetime, `observer` sees each output of an op in the programs that this thread runs,
// in the order of the compiled program. Results computed in advance by passes or plans are not
// shown, and intermediate values inside a fused op do not exist. An exception of the observer ends
// the run. A nested scope replaces the outer one during its lifetime.
class ScopedValueObserver {
 public:
  explicit ScopedValueObserver(ValueObserver observer);
  ~ScopedValueObserver();
  ScopedValueObserver(const ScopedValueObserver&) = delete;
  ScopedValueObserver& operator=(const ScopedValueObserver&) = delete;

  // The innermost one of this thread; nullptr if there is none.
  static const ValueObserver* Current();

 private:
  ValueObserver observer_;
  const ValueObserver* before_;
};

}  // namespace coracle::inline internal
