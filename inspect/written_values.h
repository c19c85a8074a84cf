#pragma once
// What the ops of a program write in a run: kept, saved and read again.

#include <coracle/executor/executor.h>
#include <coracle/executor/value_observer.h>
#include <coracle/framework/io/tensor_io.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

// The values of a program's variables as the ops of its root block wrote them in one run, by name;
// several of a variable that is written several times (in place). Dense tensors alone.
using WrittenTensors = std::map<std::string, std::vector<Tensor>>;

// Keeps what the ops of a run write: for a ScopedValueObserver around it. `written` outlives it.
ValueObserver KeepInto(WrittenTensors* written);

// One way to run a program.
struct RunWay {
  const ProgramDesc* program = nullptr;
  CompileOptions options = {};
  std::function<Scope()> parameters = {};  // called before each run, which may update them
  std::map<std::string, Tensor> feeds = {};
  // Without any: what fetch ops fetch, or else what no op reads, but for outputs that only gradient
  // ops are meant to read.
  std::vector<std::string> fetches = {};
  bool fetches_all = false;  // these are what the ops write, and not all of them results
  int threads = 0;           // 0: as many as now
  // Values that another build saved, in place of a run; feeds, options and parameters are then not
  // used.
  std::shared_ptr<const WrittenTensors> saved = nullptr;
};

std::vector<std::string> FetchesOf(const RunWay& way);
// The fetches, or where these are all that the ops write, what would be fetched without any.
std::vector<std::string> ResultsOf(const RunWay& way);

// The dense variables that ops of the root block write, in their order: as fetches, they make
// passes leave every op as it is.
std::vector<std::string> WrittenNames(const ProgramDesc& program);

// Runs the program once and keeps what its ops write; with `names`, of these variables alone, which
// are fetched too, so that passes leave them as they are. What is known before a run is not
// written (see value_observer.h), but its value is kept if it is fetched. Throws what the run
// throws, and kInvalidArgument for a feed that is missing.
WrittenTensors KeepWritten(const RunWay& way, const std::vector<std::string>& names = {});

// As arrays of a file, in the order of the program's ops: the last value of each variable under its
// name, those before it under x@WRITE@0, x@WRITE@1, ... And back; throws kInvalidArgument if one of
// a variable's values is missing.
NamedTensors ToArrays(const WrittenTensors& written, const ProgramDesc& program);
WrittenTensors FromArrays(const NamedTensors& arrays);

}  // namespace coracle
