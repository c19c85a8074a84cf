#pragma once
// Shows what the ops of a running program write, for tools that keep or compare the values of two
// runs. Nothing is looked up while nobody observes.

#include <coracle/framework/tensor/tensor.h>

#include <functional>
#include <string>

namespace coracle {

// A variable after an op that writes it has run.
struct WrittenValue {
  const std::string& var;
  const VarValue& value;  // a dense tensor in it may be a view, valid during the call alone
  bool in_root_block;     // written by an op of the root block
};
using ValueObserver = std::function<void(const WrittenValue&)>;

// While it lives, `observer` sees each write of an op in the programs that this thread runs, in the
// order of the compiled program. What is known before a run (results that passes or plans computed
// in advance) is not written, and values inside of an op of fusion do not exist. An exception of
// the observer ends the run. A scope inside of another one replaces it for its time.
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

}  // namespace coracle
