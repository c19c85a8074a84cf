#include <coracle/communication/communicator.h>
#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/fingerprint.h>
#include <coracle/framework/tensor/tensor.h>
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
  if (rows < 0 || rank < 0 || rank >= size)
    ThrowInvalid(fmt::format("{} rows have no part of rank {} of {}", rows, rank, size));
  const int64_t each = rows / size, more = rows % size;
  const int64_t count = each + (rank < more ? 1 : 0);
  if (count == 0) return {0, 1, false};
  return {rank * each + std::min<int64_t>(rank, more), count, true};
}

void Ranks::Sum(std::span<double> values) const {
  if (several()) communicator_->AllReduce(values.data(), static_cast<int64_t>(values.size()));
}

void Ranks::Sum(Tensor* tensor) const {
  Required(tensor, "the tensor to sum over ranks");
  if (!several()) return;
  communicator_->Run({Exchange::Kind::kAllReduce,
                      tensor->dtype(),
                      {tensor->numel()},
                      tensor->raw(),
                      tensor->raw()});
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

namespace {

// The position from which to show two texts so that their first difference is visible: the start of
// its line, or a position shortly before it.
size_t StartOfDifference(const std::string& a, const std::string& b) {
  constexpr size_t kBefore = 60;
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto at = static_cast<size_t>(differ.first - a.begin());
  if (at < kBefore) return 0;
  const size_t line = a.rfind('\n', at - 1);
  return line != std::string::npos && at - line <= kBefore ? line + 1 : at - kBefore;
}

}  // namespace

void Ranks::RequireSame(const std::string& what, const std::string& value,
                        const std::string& advice) const {
  if (!several()) return;
  // Exchange fingerprints first, and texts only if these differ.
  const uint64_t own = Fingerprint(value.data(), value.size());
  const std::vector<std::string> prints =
      Gather(std::string(reinterpret_cast<const char*>(&own), sizeof own));
  const auto other = std::find_if(prints.begin(), prints.end(),
                                  [&](const std::string& print) { return print != prints[0]; });
  if (other == prints.end()) return;
  const auto at = static_cast<size_t>(other - prints.begin());
  const std::vector<std::string> values = Gather(value), names = Names();
  const size_t part = StartOfDifference(values[at], values[0]);
  const auto shown = [&](const std::string& text) {
    constexpr size_t kShown = 120;
    return (part > 0 ? "..." : "") +
           Quote(std::string_view(text).substr(std::min(part, text.size())), kShown);
  };
  ThrowInvalid(fmt::format("{} and {} differ in the {}: {} and {}; {}", names[at], names[0], what,
                           shown(values[at]), shown(values[0]), advice));
}

}  // namespace coracle
