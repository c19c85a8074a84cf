#pragma once
// Training steps by several ranks, each on its rows of a batch, and by one rank on all of it. The
// ranks are threads, or processes where mpirun has started this one as one of several.

#include <coracle/communication/communicator.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/ir/program.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace coracle {

using Batch = std::map<std::string, Tensor>;

// nullptr where the ranks are threads.
inline std::shared_ptr<Communicator> CommunicatorOfProcess() {
  static const std::shared_ptr<Communicator> communicator =
      FindLaunched().size > 1 ? LoadMpiCommunicator(30) : nullptr;
  return communicator;
}

// Runs `body` on every rank, or on this process if it is a rank; fails if any rank throws.
inline void OnRanks(int size,
                    const std::function<void(const std::shared_ptr<Communicator>&)>& body) {
  if (const auto communicator = CommunicatorOfProcess()) return body(communicator);
  auto communicators = ThreadCommunicators(size, 60);
  std::vector<std::thread> threads;
  for (auto& each : communicators) {
    threads.emplace_back([&body, communicator = std::shared_ptr<Communicator>(std::move(each))] {
      try {
        body(communicator);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << communicator->rank() << ": " << error.what();
      }
    });
  }
  communicators.clear();
  for (std::thread& thread : threads) thread.join();
}

// If the ranks are processes, each has filled its own scope; fills the scopes of the others.
inline void ShareScopes(std::vector<Scope>* scopes) {
  const Ranks ranks(CommunicatorOfProcess());
  if (!ranks.several()) return;
  Scope& own = (*scopes)[static_cast<size_t>(ranks.rank())];
  for (const std::string& name : own.LocalNames()) {
    const Tensor& tensor = own.Get(name);
    const std::vector<std::string> values =
        ranks.Gather(std::string(static_cast<const char*>(tensor.raw()), tensor.nbytes()));
    for (size_t r = 0; r < values.size(); ++r) {
      Tensor copy = Tensor::Zeros(tensor.dtype(), tensor.shape());
      if (values[r].size() != copy.nbytes()) ThrowInvalid(name + " has another size on a rank");
      std::memcpy(copy.raw(), values[r].data(), values[r].size());
      if (&(*scopes)[r] != &own) (*scopes)[r].Set(name, std::move(copy));
    }
  }
}

inline Tensor Slice(const Tensor& all, const RankRows& rows) {
  std::vector<int64_t> dims = all.shape().ToVector();
  const int64_t row_bytes = dims[0] == 0 ? 0 : static_cast<int64_t>(all.nbytes()) / dims[0];
  dims[0] = rows.count;
  Tensor part = Tensor::Zeros(all.dtype(), Shape(dims));
  std::memcpy(part.raw(), static_cast<const char*>(all.raw()) + rows.begin * row_bytes,
              static_cast<size_t>(dims[0] * row_bytes));
  return part;
}

// The programs of a training step. `share`: see AllReduceOptions.
struct StepPrograms {
  ProgramDesc main, startup;
};

// The scope after all batches. `communicator` nullptr: one rank. Returns the values of `fetched`, a
// variable [1], or nothing.
inline std::vector<double> TrainOn(const StepPrograms& programs, const std::vector<Batch>& batches,
                                   const std::string& share, const CompileOptions& options,
                                   const std::shared_ptr<Communicator>& communicator, Scope* scope,
                                   const std::string& fetched = "") {
  const Executor executor(options);
  PreparedProgram startup = executor.Prepare(programs.startup);
  startup.SetCommunicator(communicator);
  startup.Run(*scope);
  std::vector<std::string> feeds;
  for (const auto& [name, tensor] : batches.at(0)) feeds.push_back(name);
  if (communicator && !share.empty()) feeds.push_back(share);
  std::vector<std::string> fetches;
  if (!fetched.empty()) fetches.push_back(fetched);
  PreparedProgram step = executor.Prepare(programs.main, feeds, fetches);
  step.SetCommunicator(communicator);
  std::vector<double> values;
  for (const Batch& batch : batches) {
    std::vector<Tensor> fed;
    const int64_t rows = batch.begin()->second.shape()[0];
    const RankRows own = Ranks(communicator).RowsOf(rows);
    for (const auto& [name, tensor] : batch) fed.push_back(Slice(tensor, own));
    if (communicator && !share.empty()) {
      const double part = static_cast<double>(own.rows()) / static_cast<double>(rows);
      fed.push_back(
          Tensor::Of<double>({1}, {part}).Cast(programs.main.Root().FindVar(share)->dtype()));
    }
    for (const Tensor& tensor : step.Run(*scope, fed))
      values.push_back(tensor.Cast(DType::kFloat64).Item<double>());
  }
  return values;
}

// |a - b| relative to the largest element of b; infinite where one of them has what is not finite.
inline double RelativeDifference(const Tensor& a, const Tensor& b) {
  const Tensor x = a.Cast(DType::kFloat64), y = b.Cast(DType::kFloat64);
  double largest = 0, difference = 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    if (!std::isfinite(x.data<double>()[i]) || !std::isfinite(y.data<double>()[i])) return INFINITY;
    largest = std::max(largest, std::abs(y.data<double>()[i]));
    difference = std::max(difference, std::abs(x.data<double>()[i] - y.data<double>()[i]));
  }
  return largest > 0 ? difference / largest : difference;
}

}  // namespace coracle
