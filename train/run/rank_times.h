#pragma once
// RankTimes: how long the ranks of a job wait for exchanges and for each other.

#include <coracle/distribute/ranks.h>

#include <chrono>
#include <string>
#include <vector>

namespace coracle {

class RankTimes {
 public:
  explicit RankTimes(const Ranks& ranks);

  // All ranks call these. By rank, the share of the time since the call before (or the beginning)
  // that it has waited; {} for a rank alone.
  std::vector<double> TakeWaited();
  // A line for each rank: of the time since the beginning the shares of transfers, of those that it
  // waited for, and of waiting for ranks that came later; "" for a rank alone.
  std::string Table() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Reading {
    Clock::time_point at;
    ExchangeTimes times;
  };
  Reading Read() const;
  // `value` of each rank.
  std::vector<double> OfAll(double value) const;

  const Ranks ranks_;
  const Reading first_;
  Reading last_;
};

}  // namespace coracle
