#pragma once
// StateCarry: states that each batch hands to the next.

#include <coracle/distribute/ranks.h>
#include <coracle/framework/ir/program.h>
#include <coracle/train/job/job.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

class StateCarry {
 public:
  // A state for each of `config`, of `to`'s type; a dimension that the program leaves open is
  // `batch_size`. Throws kNotFound for a name that the program lacks, kInvalidArgument when `from`
  // and `to` differ in dtype or shape; `source` names the job in errors.
  // Of several ranks each carries the states of its rows; then a state must have one such
  // dimension.
  StateCarry(const ProgramDesc& program, const std::vector<CarryConfig>& config, int64_t batch_size,
             const std::string& source, const Ranks& ranks = Ranks());

  bool empty() const { return states_.empty(); }
  const std::vector<std::string>& from() const { return from_; }
  const std::vector<std::string>& to() const { return to_; }

  void Reset();  // zeros
  // What a run fetched for from(). Throws kInvalidArgument for another shape than the state's.
  void Receive(std::span<const Tensor> fetched);
  // `feeds` with the states behind them. Valid until the next call.
  const std::vector<Tensor>& Append(const std::vector<Tensor>& feeds);

  // The states by the names that they are fed to: those of all ranks, which is an exchange.
  std::vector<std::pair<std::string, Tensor>> Save() const;
  // Throws kInvalidArgument for states of other names, dtypes or shapes.
  void Load(const std::vector<std::pair<std::string, Tensor>>& saved);

 private:
  std::vector<std::string> from_, to_;
  std::vector<Tensor> states_, feeds_;
  std::vector<int> axes_;  // of the batch, in each state
  Ranks ranks_;
  int64_t batch_size_;
};

}  // namespace coracle
