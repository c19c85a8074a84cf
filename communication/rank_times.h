#pragma once
// RankTimes: measures how long the ranks of a job wait for exchanges and for each other.

#include <coracle/communication/communicator.h>

#include <chrono>
#include <string>
#include <vector>

namespace coracle::inline internal {

class RankTimes {
 public:
  explicit RankTimes(const Ranks& ranks);

  // For each rank, the share of the time since the previous call (or the beginning) that it has
  // waited; {} if there is only one rank. All ranks must call it, and Table.
  std::vector<double> TakeWaited();
  // One line for each rank with shares of the time since the beginning: transfers, transfers for
  // which it waited, and waiting for ranks that came later. "" if there is only one rank.
  std::string Table() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Reading {
    Clock::time_point at;
    ExchangeTimes times;
  };
  Reading Read() const;
  // Gathers `value` from each rank.
  std::vector<double> OfAll(double value) const;

  const Ranks ranks_;
  const Reading first_;
  Reading last_;
};

}  // namespace coracle::inline internal
