#pragma once
// What kernels of collective communication share. Without a communicator one rank runs the program.

#include <coracle/communication/comm_context.h>
#include <coracle/framework/op/op_spec.h>
#include <coracle/framework/op/prepare_context.h>

#include <string>

namespace coracle {

// The ranks of this run.
int NumRanks(const Workspace& ws);
int RankOf(const Workspace& ws);
// Throws kInvalidArgument "c_concat: nranks is 2, but one rank runs the program" unless as many
// ranks run it as the op was made for.
void RequireRanks(const Workspace& ws, int nranks, const std::string& what);

// Whether ops of this type are for several ranks: they exchange, depend on the rank, or set
// exchanges up, so that a program with one needs the communicator of its run. These are the ops of
// this folder, sync_batch_norm with its gradients, and those of a user's library that declare the
// attr ring_id, as Paddle's ops that exchange do.
bool IsForRanks(const OpSpec& spec);

// An exchange that is Started where a pass found that it may (attr `overlap`), and its result lies
// where its input lay, or its input lies in an output of the op (`own_input`), which lives as long
// as the result; otherwise Run.
class Exchanger {
 public:
  explicit Exchanger(const PrepareContext& ctx, bool own_input = false);
  void operator()(Workspace& ws, Exchange exchange) const;
  void Run(Workspace& ws, Exchange exchange) const;

 private:
  std::vector<std::string> outs_;
  std::string name_;
  int ring_;
  bool overlap_, own_input_;
};

// The attr that the pass overlap_exchanges sets.
inline constexpr const char* kOverlapAttr = "overlap";

}  // namespace coracle
