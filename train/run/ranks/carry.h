#pragma once
// StateCarry: states that one batch passes to the next.

#include <coracle/communication/communicator.h>
#include <coracle/framework/ir/program.h>
#include <coracle/train/job/job.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

class StateCarry {
 public:
  // Makes one state for each entry of `config`, of the type of its `to`; an unknown dimension
  // becomes `batch_size`. Throws kNotFound for a name that is not in the program, and
  // kInvalidArgument if `from` and `to` differ in dtype or shape. `source` names the job in errors.
  //
  // With several ranks, each rank carries the states of its rows. A state must then have exactly
  // one unknown dimension.
  StateCarry(const ProgramDesc& program, const std::vector<CarryConfig>& config, int64_t batch_size,
             const std::string& source, const Ranks& ranks = Ranks());

  bool empty() const { return states_.empty(); }
  const std::vector<std::string>& from() const { return from_; }
  const std::vector<std::string>& to() const { return to_; }

  void Reset();  // sets the states to zero
  // Takes the values that a run fetched for from(). Throws kInvalidArgument if a shape differs from
  // the state's.
  void Receive(std::span<const Tensor> fetched);
  // Returns `feeds` followed by the states. Valid until the next call.
  const std::vector<Tensor>& Append(const std::vector<Tensor>& feeds);

  // The states of all ranks, named by the variables that they are fed to. The ranks exchange them.
  std::vector<std::pair<std::string, Tensor>> Save() const;
  // Throws kInvalidArgument for states with other names, dtypes or shapes.
  void Load(const std::vector<std::pair<std::string, Tensor>>& saved);

 private:
  std::vector<std::string> from_, to_;
  std::vector<Tensor> states_, feeds_;
  std::vector<int> axes_;  // the batch dimension of each state
  Ranks ranks_;
  int64_t batch_size_;
};

}  // namespace coracle::inline internal
