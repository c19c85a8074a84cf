#pragma once
// Training steps by threads as ranks, each on its rows of a batch, and by one rank on all of it.

#include <coracle/communication/communicator.h>
#include <coracle/distribute/ranks.h>
#include <coracle/executor/executor.h>
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

// Runs `body` on one thread per rank; fails for an error of any.
inline void OnRanks(int size,
                    const std::function<void(const std::shared_ptr<Communicator>&)>& body) {
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

// The scope after all batches. `communicator` nullptr: one rank.
inline void TrainOn(const StepPrograms& programs, const std::vector<Batch>& batches,
                    const std::string& share, const CompileOptions& options,
                    const std::shared_ptr<Communicator>& communicator, Scope* scope) {
  const Executor executor(options);
  PreparedProgram startup = executor.Prepare(programs.startup);
  startup.SetCommunicator(communicator);
  startup.Run(*scope);
  std::vector<std::string> feeds;
  for (const auto& [name, tensor] : batches.at(0)) feeds.push_back(name);
  if (communicator && !share.empty()) feeds.push_back(share);
  PreparedProgram step = executor.Prepare(programs.main, feeds);
  step.SetCommunicator(communicator);
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
    step.Run(*scope, fed);
  }
}

// |a - b| relative to the largest element of b.
inline double RelativeDifference(const Tensor& a, const Tensor& b) {
  const Tensor x = a.Cast(DType::kFloat64), y = b.Cast(DType::kFloat64);
  double largest = 0, difference = 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    largest = std::max(largest, std::abs(y.data<double>()[i]));
    difference = std::max(difference, std::abs(x.data<double>()[i] - y.data<double>()[i]));
  }
  return largest > 0 ? difference / largest : difference;
}

}  // namespace coracle
