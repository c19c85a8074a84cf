#pragma once
// The values that the ops of a program write in a run: keeps, saves and reads them.

#include <coracle/executor/executor.h>
#include <coracle/executor/frame/value_observer.h>
#include <coracle/framework/io/tensor_io.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace coracle::inline internal {

// The values that the ops of a program's root block wrote in one run, by variable name; several
// values for a variable that is written several times (in place). Only dense tensors.
using WrittenTensors = std::map<std::string, std::vector<Tensor>>;

// Keeps the outputs of a run's ops, with a ScopedValueObserver around it. `written` must
// outlive it.
ValueObserver KeepInto(WrittenTensors* written);

// One way to run a program.
struct RunWay {
  const ProgramDesc* program = nullptr;
  CompileOptions options = {};
  std::function<Scope()> parameters = {};  // called before each run, because a run may update them
  std::map<std::string, Tensor> feeds = {};
  // If empty: the variables that fetch ops fetch, or else the variables that no op reads, without
  // outputs that only gradient ops are meant to read.
  std::vector<std::string> fetches = {};
  bool fetches_all = false;  // `fetches` are all outputs of ops, and not all of them are results
  int threads = 0;           // 0: the current number
  // Values that another build saved; they replace a run, so feeds, options and parameters
  // are unused.
  std::shared_ptr<const WrittenTensors> saved = nullptr;
};

std::vector<std::string> FetchesOf(const RunWay& way);
// The fetches; if `fetches_all`, the variables that would be fetched if `fetches` were empty.
std::vector<std::string> ResultsOf(const RunWay& way);

// The dense variables that ops of the root block write, in their order. Fetching all of them keeps
// passes from changing the ops.
std::vector<std::string> WrittenNames(const ProgramDesc& program);

// Runs the program once and keeps the outputs of its ops. With `names`, keeps only these variables
// and fetches them, so that passes do not change them. Values known before a run are not written
// (see value_observer.h), but are kept if they are fetched. Throws the errors of the run, and
// kInvalidArgument for a missing feed.
WrittenTensors KeepWritten(const RunWay& way, const std::vector<std::string>& names = {});

// Converts to and from arrays of a file, in the order of the program's ops: the last value of each
// variable has its name, earlier ones are x@WRITE@0, x@WRITE@1, ... FromArrays throws
// kInvalidArgument if one of a variable's values is missing.
NamedTensors ToArrays(const WrittenTensors& written, const ProgramDesc& program);
WrittenTensors FromArrays(const NamedTensors& arrays);

}  // namespace coracle::inline internal
