#include <coracle/distribute/ranks.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/fingerprint.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

namespace coracle {
namespace {

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

}  // namespace

RankRows RowsOfRank(int64_t rows, int rank, int size) {
  const int64_t each = rows / size, more = rows % size;
  const int64_t count = each + (rank < more ? 1 : 0);
  if (count == 0) return {0, 1, false};
  return {rank * each + std::min<int64_t>(rank, more), count, true};
}

void Ranks::Sum(std::span<double> values) const {
  if (several()) communicator_->AllReduce(values.data(), static_cast<int64_t>(values.size()));
}

bool Ranks::Any(bool value) const {
  double any = value ? 1 : 0;
  Sum({&any, 1});
  return any > 0;
}

std::vector<std::string> Ranks::Gather(const std::string& bytes) const {
  if (!several()) return {bytes};
  const auto ranks = static_cast<size_t>(size());
  std::vector<int64_t> counts(ranks);
  const auto own = static_cast<int64_t>(bytes.size());
  Exchange exchange{Exchange::Kind::kAllGather, DType::kInt64, std::vector<int64_t>(ranks, 1), &own,
                    counts.data()};
  communicator_->Run(exchange);
  std::string all(static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0})),
                  '\0');
  exchange.dtype = DType::kUInt8;
  exchange.counts = counts;
  exchange.in = bytes.data();
  exchange.out = all.data();
  communicator_->Run(exchange);
  std::vector<std::string> parts;
  size_t at = 0;
  for (const int64_t count : counts) {
    parts.push_back(all.substr(at, static_cast<size_t>(count)));
    at += static_cast<size_t>(count);
  }
  return parts;
}

std::string Ranks::FromFirst(const std::string& bytes) const {
  return several() ? Gather(first() ? bytes : "")[0] : bytes;
}

std::vector<std::string> Ranks::Names() const {
  std::vector<std::string> names = Gather(HostName());
  for (size_t rank = 0; rank < names.size(); ++rank)
    names[rank] = fmt::format("rank {} ({})", rank, names[rank]);
  return names;
}

void Ranks::RequireSame(const std::string& what, const std::string& value,
                        const std::string& advice) const {
  if (!several()) return;
  // Each rank's fingerprint on every rank; texts only where they differ.
  const uint64_t own = Fingerprint(value.data(), value.size());
  const std::vector<std::string> prints =
      Gather(std::string(reinterpret_cast<const char*>(&own), sizeof own));
  const auto other = std::find_if(prints.begin(), prints.end(),
                                  [&](const std::string& print) { return print != prints[0]; });
  if (other == prints.end()) return;
  const auto at = static_cast<size_t>(other - prints.begin());
  constexpr size_t kShown = 300;
  const std::vector<std::string> values = Gather(value.substr(0, kShown)), names = Names();
  ThrowInvalid(fmt::format("{} and {} differ in the {}: {} and {}; {}", names[at], names[0], what,
                           Quote(values[at]), Quote(values[0]), advice));
}

}  // namespace coracle
