#pragma once
// Compiles and runs programs. A program is compiled once (verified, copied, rewritten by passes),
// planned once per signature of its feeds (shapes, kernels, memory), and then run without name
// look-ups, shape inference or allocation. docs/executor.md explains how.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/operators.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace coracle {

struct CompileOptions {
  KernelMode kernels = KernelMode::kAuto;
  bool optimize = true;  // run the passes of passes/pipeline.cc
  // Names of passes to skip, for example to measure the effect of each. Compiling throws kNotFound
  // for a name that the pipeline does not have.
  std::vector<std::string> disabled_passes = {};
  // kBFloat16: layers whose weights are frozen (PrepareFrozen) compute in bfloat16 where the
  // machine does that faster; sums, norms, softmax and the types of feeds and fetches stay as they
  // are. See docs/mixed_precision.md. Compiling throws kInvalidArgument for other dtypes than
  // kFloat32 and kBFloat16, and for a program with gradients or updates.
  DType precision = DType::kFloat32;
  // Ops that write one of these variables compute in float32 all the same. Compiling throws
  // kNotFound for a name that the program does not have.
  std::vector<std::string> float32_vars = {};
  // Replaces ops that only join others (OpDef::Expands). Off: such ops stay, and cannot run.
  bool expand = true;
  // Chooses among the kernels of an op (Winograd's method, oneDNN, ... for a convolution) by timing
  // each on random elements when a plan is made, instead of by fixed rules. Planning takes longer,
  // and results may differ in their last bits from one process to the next.
  bool tune = false;
  // Throws if an op's output contains a nan or inf; the Error names op, var and index.
  bool check_nan_inf = false;
  bool profile = false;  // time each op
  // Limit in bytes for one workspace and for everything that its runs allocate; 0: 80% of the
  // memory of the machine or control group. The ResourceLimits of the running thread apply too.
  uint64_t memory_limit = 0;
  double time_limit = 0;  // seconds for one run; 0: no limit
  // Called before each op, so that a run can be stopped (Ctrl-C): returning true ends the run with
  // kCancelled. Must be safe to call from any thread.
  std::function<bool()> stop = {};
  // The directory below which ops such as save and load may read and write files; their paths are
  // relative to it. "": a program with an op that names a file is refused.
  std::string allow_files = {};
  // A run treats subnormal numbers as 0, as operands and as results, in all of its kernels: many
  // processors compute with them more slowly. With KernelMode::kReference it keeps them.
  bool flush_subnormals = true;
  uint64_t seed = 0;      // for random ops, unless the program has a random_seed
  size_t max_plans = 16;  // plans kept for different feed signatures
  // Warns if the shape of a feed or a persistable variable differs from the declared one, once for
  // each variable and Executor. To be turned off by callers who feed other shapes on purpose.
  bool shape_warnings = true;
};

// The time spent in one op, summed over runs. Ops of sub-blocks are timed separately; their time
// does not count for the op that runs the block.
struct OpTime {
  std::string op_type;
  std::string output;  // its first output
  uint64_t runs = 0;
  double seconds = 0;
  // The kernel that was used, if the op has several: "winograd". In a tuned program it includes the
  // measured times: "winograd: winograd 1.2 ms, onednn 1.9 ms".
  std::string kernel = {};
};

class Communicator;
inline namespace internal {
class CompiledProgram;
class CommContext;
class ShapeWarningLog;
}  // namespace internal

// A compiled program with the workspace to run it, for one thread at a time. Copies share the
// compiled program and its plans, but each has its own workspace: make one copy per thread.
class PreparedProgram {
 public:
  PreparedProgram(const PreparedProgram& other);
  PreparedProgram& operator=(const PreparedProgram& other);
  PreparedProgram(PreparedProgram&&) noexcept;
  PreparedProgram& operator=(PreparedProgram&&) noexcept;
  ~PreparedProgram();

  // Runs once with `feeds` in the order of feed_names(). Feeds are passed by reference; only memory
  // that the run itself overwrites is copied (a result of the last run, a variable that the program
  // writes). Persistable variables are read from `scope` and written to it in place. The result, in
  // the order of fetch_names(), stays valid until the next Run (use Clone to keep a value longer).
  // Throws kInvalidArgument for a feed of the wrong dtype, or of the wrong shape if the variable
  // has need_check_feed, which the builder and model text set (other variables get a warning, since
  // old files declare the shape that they were exported with); kNotFound for a persistable variable
  // that the scope does not hold.
  //
  // An Error in the middle of a run (a time limit, a stop, a check of values) leaves the
  // persistable variables as they are at that moment. Updates run as soon as their gradient is
  // complete, so some parameters may have been updated and others not: return to a snapshot, or
  // restart from known values.
  const std::vector<Tensor>& Run(Scope& scope, std::span<const Tensor> feeds);
  const std::vector<Tensor>& Run(Scope& scope, const std::vector<Tensor>& feeds = {}) {
    return Run(scope, std::span<const Tensor>(feeds));
  }

  // The variables whose values are part of the program, sorted; see Executor::PrepareFrozen.
  const std::vector<std::string>& frozen_names() const;

  const std::vector<std::string>& feed_names() const;
  const std::vector<std::string>& fetch_names() const;
  const ProgramDesc& program() const;  // after the passes; can be saved

  // Makes later runs act as one rank of a distributed run: ops such as c_allreduce_sum exchange
  // through the communicator, and random ops draw from a seed of the rank (rank 0 uses the
  // program's seed). Without a communicator (nullptr, and in copies) a program runs as the only
  // rank. An Error in a run aborts the exchanges that it began, so that the other ranks get an
  // Error too.
  void SetCommunicator(std::shared_ptr<Communicator> communicator);
  // For Coracle's own code: the context for exchanges; nullptr if this is the only rank.
  const CommContext* comm() const;

  // The number of the next run, counted from 0. Random draws depend on it.
  uint64_t step() const;
  void SetStep(uint64_t step);

  std::vector<OpTime> Profile() const;  // in program order; empty unless options.profile
  std::string ProfileTable() const;     // by time, as text
  // Memory of the plan that ran last: its arena and other values.
  uint64_t WorkspaceBytes() const;

  // For Coracle's own code: the program bound to feeds and fetches. Immutable; any number of
  // threads may run it, each with its own workspace.
  const std::shared_ptr<const CompiledProgram>& compiled() const;

 private:
  friend class Executor;
  struct Impl;
  explicit PreparedProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Executor {
 public:
  explicit Executor(CompileOptions options = {}, const OpRegistry& ops = DefaultOps());

  // Verifies and compiles. An empty list means the program's own feed (or fetch) ops, in the order
  // of their attr col. Any variable may be fetched. Throws an Error that lists all problems of the
  // program, or kNotFound for a name that it does not have.
  PreparedProgram Prepare(const ProgramDesc& program, const std::vector<std::string>& feeds = {},
                          const std::vector<std::string>& fetches = {}) const;

  // Like Prepare, for parameters that no longer change: persistable variables become constants
  // if no op of the program writes them, they are not fed, and `scope` holds them as dense
  // tensors. Ops that depend only on constants are computed in advance, a batch_norm is folded
  // into the preceding convolution (which changes the last bits of results), and kernels keep
  // constants in their own layout. This is done once for all shapes of feeds and all copies of
  // the prepared program.
  //
  // Each Run checks the scope that it gets, this one or another: if a frozen variable in it has
  // other values than here, no matter who changed it, Run throws kInvalidArgument and changes
  // nothing. A frozen variable may be missing from the scope. Run also throws if the frozen memory
  // has been written through any handle that still holds it. Writes through a pointer taken from a
  // Tensor before the last Run are noticed only after Tensor::MarkWritten.
  PreparedProgram PrepareFrozen(const ProgramDesc& program, const Scope& scope,
                                const std::vector<std::string>& feeds = {},
                                const std::vector<std::string>& fetches = {}) const;
  // Like PrepareFrozen, but removes frozen variables from the scope, so that none is in memory
  // twice, even during compilation. If compilation runs out of memory, they are lost.
  PreparedProgram PrepareOwning(const ProgramDesc& program, Scope& scope,
                                const std::vector<std::string>& feeds = {},
                                const std::vector<std::string>& fetches = {}) const;

  // Compiles and runs once. The caller owns the result.
  std::vector<Tensor> Run(const ProgramDesc& program, Scope& scope,
                          const std::map<std::string, Tensor>& feeds = {},
                          const std::vector<std::string>& fetches = {}) const;

  const CompileOptions& options() const { return options_; }
  const OpRegistry& ops() const { return *ops_; }

 private:
  CompileOptions options_;
  const OpRegistry* ops_;
  std::shared_ptr<ShapeWarningLog> warning_log_;  // shared by all programs that it compiles
};

}  // namespace coracle
