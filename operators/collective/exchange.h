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

// Whether a program with an op of this type needs the communicator of its run: the op declares
// OpDef::ForRanks or has the attr ring_id.
bool IsForRanks(const OpSpec& spec);

// An exchange. It is started asynchronously if a pass set the attr `overlap` and its buffers
// outlive the call: either the result overwrites the input, or the input is memory of one of the
// op's outputs (`own_input`). Otherwise it runs synchronously.
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
