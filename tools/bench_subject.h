#pragma once
// The program that `coracle bench` runs, with its parameters and drawn feeds.

#include <coracle/executor/executor.h>
#include <coracle/framework/ir/program.h>
#include <coracle/tools/flags.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::tools {

// The flags of bench that say what runs, and on what.
struct SubjectFlags {
  std::vector<std::string> shape = {};
  std::vector<std::string> fetch = {};
  std::string params = {};
  bool draw = false;
  CompileFlags compile = {};
};
Fields<SubjectFlags> SubjectFields();

struct BenchSubject {
  std::string kind;  // "saved model", "program", "model text" or "job"
  ProgramDesc program{};
  std::vector<std::string> feeds = {}, fetches = {};  // as in Executor::Prepare
  Scope scope{};
  std::string weights{};  // source of the parameters: "file", "startup program", "drawn" or "none"
  bool trains = false;  // it is a job's step, which changes its parameters, so they are not frozen
  int64_t batch_size = 1;  // replaces unknown dims
  int64_t batches = 1;     // runs of the program in one step
};

// Reads the program, model or job at `path`. Parameters come from --params, from the file next to
// the program, or from its startup program; missing ones are drawn (all of them with --draw). Sets
// `seconds` to the time of everything except drawing. `batch_size` 0 means the job's own batch
// size, or 1 for a program. Throws UsageError for flags that do not apply to `path`.
BenchSubject LoadSubject(const std::string& path, const SubjectFlags& flags, int64_t batch_size,
                         double* seconds);

struct BenchFeeds {
  std::vector<std::string> names;
  std::vector<Tensor> values;
  int64_t samples = 1;  // samples in one run of the program
};

// Draws a feed for each of `names`, in the shape given by --shape or declared by the program.
// Throws kInvalidArgument for dims that neither gives, and kNotFound for a name that the program
// does not feed.
BenchFeeds DrawFeeds(const BenchSubject& subject, const SubjectFlags& flags,
                     const std::vector<std::string>& names);

}  // namespace coracle::tools
