#pragma once
// The workloads of model_bench, by name: a program with its parameters and feeds.

#include <coracle/coracle.h>

#include <memory>
#include <string>
#include <vector>

namespace coracle {

struct WorkloadOptions {
  std::string kind = "";     // "train", "infer" or "micro"
  std::string name = "";     // one of WorkloadNames(kind)
  int64_t batch = 1;         // for "infer"
  int64_t rows = 0;          // rows of the recommender's table; 0: 1,000,000
  bool bfloat16 = false;     // mixed precision, level O1
  std::string program = "";  // "infer": a saved program (see LoadInferenceModel) instead of a name
  Shape shape = {};  // shape of its feed; rank 0: the declared shape, with `batch` for the first -1
};

struct Workload {
  ProgramDesc main, startup;
  Scope scope;  // filled by Fill, or with a saved program's parameters
  std::vector<std::string> feeds, fetches;
  std::vector<std::vector<Tensor>> batches;  // used in turn
  bool has_loss = false;                     // the first fetch is a loss that training lowers
  bool frozen = false;                       // parameters are constants of the compiled program

  // Runs the startup program, if there is one, and draws the running statistics of inference.
  void Fill();
  PreparedProgram Prepare(const CompileOptions& options);
};

std::vector<std::string> WorkloadNames(const std::string& kind);

// The result is not yet filled. Throws kInvalidArgument for unknown names.
std::unique_ptr<Workload> MakeWorkload(const WorkloadOptions& options);

// Draws a value for each feed of the saved model. Throws kInvalidArgument for unknown dims other
// than the first.
std::vector<Tensor> DrawFeeds(const InferenceModel& model, const WorkloadOptions& options);

// A program of `ops` ops (mul, elementwise_add with parameters and relu in turn) for first runs;
// eight layers share their parameters with the others.
std::unique_ptr<Workload> MakeChain(int64_t ops);

}  // namespace coracle
