#pragma once
// Shared by the kernels of collective communication. Without a communicator there is a single rank.

#include <coracle/communication/comm_context.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>

#include <string>

namespace coracle::inline internal {

// The number of ranks of this run, and this rank.
int NumRanks(const Workspace& ws);
int RankOf(const Workspace& ws);
// Throws kInvalidArgument "c_concat: nranks is 2, but one rank runs the program" unless the run has
// the number of ranks that the op was made for.
void RequireRanks(const Workspace& ws, int nranks, const std::string& what);

// Whether ops of this type work on several ranks: they exchange, depend on the rank, or set up
// exchanges, so that a program with one needs the communicator of its run. These are the ops of
// this folder, sync_batch_norm with its gradients, and ops of a user's library with the attr
// ring_id, which all exchanging ops of Paddle have.
bool IsForRanks(const OpSpec& spec);

// An exchange. It is started asynchronously if a pass allowed it (attr `overlap`) and its memory
// lives long enough: the result is in place of the input, or the input lies in an output of the op
// (`own_input`), which lives as long as the result. Otherwise it runs synchronously.
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

}  // namespace coracle::inline internal
