#include <coracle/communication/rank_times.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {

RankTimes::RankTimes(const Ranks& ranks) : ranks_(ranks), first_(Read()), last_(first_) {}

RankTimes::Reading RankTimes::Read() const {
  const auto communicator = ranks_.communicator();
  return {Clock::now(), communicator ? communicator->times() : ExchangeTimes()};
}

std::vector<double> RankTimes::OfAll(double value) const {
  std::vector<double> all(static_cast<size_t>(ranks_.size()));
  all[static_cast<size_t>(ranks_.rank())] = value;
  ranks_.Sum(all);
  return all;
}

std::vector<double> RankTimes::TakeWaited() {
  if (!ranks_.several()) return {};
  const Reading now = Read();
  const double passed = std::chrono::duration<double>(now.at - last_.at).count();
  const double waited = now.times.waited - last_.times.waited;
  last_ = now;
  return OfAll(passed > 0 ? waited / passed : 0);
}

std::string RankTimes::Table() const {
  if (!ranks_.several()) return "";
  const Reading now = Read();
  const double passed = std::chrono::duration<double>(now.at - first_.at).count();
  const double exposed = now.times.exposed - first_.times.exposed;
  const std::vector<double> transfers = OfAll(now.times.transfers - first_.times.transfers),
                            waited_for = OfAll(exposed),
                            late = OfAll(now.times.waited - first_.times.waited - exposed);
  std::string text = fmt::format(
      "exchanges, in percent of {:.3f} s: all, exposed (waited for), and waiting for later ranks\n"
      "{:>8} {:>8} {:>8}\n",
      passed, "all", "exposed", "later");
  const std::vector<std::string> names = ranks_.Names();
  for (size_t r = 0; r < names.size(); ++r) {
    text +=
        fmt::format("{:>7.1f}% {:>7.1f}% {:>7.1f}%  {}\n", 100 * transfers[r] / passed,
                    100 * waited_for[r] / passed, 100 * std::max(0.0, late[r]) / passed, names[r]);
  }
  return text;
}

}  // namespace coracle::inline internal
