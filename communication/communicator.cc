#include <coracle/communication/communicator.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace coracle {

const char* ToString(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kProd:
      return "prod";
    case Reduction::kMax:
      return "max";
    case Reduction::kMin:
      return "min";
  }
  return "unknown";
}

const char* ToString(Exchange::Kind kind) {
  switch (kind) {
    case Exchange::Kind::kAllReduce:
      return "allreduce";
    case Exchange::Kind::kBroadcast:
      return "broadcast";
    case Exchange::Kind::kAllGather:
      return "allgather";
    case Exchange::Kind::kReduceScatter:
      return "reducescatter";
    case Exchange::Kind::kBarrier:
      return "barrier";
  }
  return "unknown";
}

namespace {

bool Reduces(Exchange::Kind kind) {
  return kind == Exchange::Kind::kAllReduce || kind == Exchange::Kind::kReduceScatter;
}

size_t NumCounts(const Exchange& exchange, int size) {
  switch (exchange.kind) {
    case Exchange::Kind::kAllGather:
      return static_cast<size_t>(size);
    case Exchange::Kind::kReduceScatter:
      return static_cast<size_t>(size) * (1 + exchange.more.size());
    case Exchange::Kind::kBarrier:
      return 0;
    default:
      return 1 + exchange.more.size();
  }
}

void CheckReduction(const Exchange& exchange) {
  const bool ordered =
      exchange.reduction == Reduction::kMax || exchange.reduction == Reduction::kMin;
  if (IsComplex(exchange.dtype) ? !ordered : exchange.dtype != DType::kBool || ordered) return;
  ThrowInvalid(fmt::format("{}: {} has no {}", ToString(exchange.kind), ToString(exchange.dtype),
                           ToString(exchange.reduction)));
}

// Only a buffer of no elements may be null.
void CheckBuffers(const Exchange& exchange) {
  if (exchange.kind == Exchange::Kind::kBarrier) return;
  const bool per_rank = exchange.kind == Exchange::Kind::kReduceScatter ||
                        exchange.kind == Exchange::Kind::kAllGather;
  const size_t of_each = per_rank ? exchange.counts.size() / (1 + exchange.more.size()) : 1;
  for (size_t k = 0; k <= exchange.more.size(); ++k) {
    const auto first = exchange.counts.begin() + static_cast<std::ptrdiff_t>(k * of_each);
    const auto last = first + static_cast<std::ptrdiff_t>(of_each);
    // A rank with no elements of its own need not have the buffer of these.
    const bool always = std::all_of(first, last, [](int64_t count) { return count > 0; });
    const void* const in = k == 0 ? exchange.in : exchange.more[k - 1].in;
    const void* const out = k == 0 ? exchange.out : exchange.more[k - 1].out;
    const bool reads_in = exchange.kind != Exchange::Kind::kBroadcast;
    if (!always || (out && (in || !reads_in))) continue;
    ThrowInvalid(fmt::format("{}: a buffer of its {} elements is a null pointer",
                             ToString(exchange.kind), std::accumulate(first, last, int64_t{0})));
  }
}

}  // namespace

void Exchange::Check(int size) const {
  if (!IsValid(dtype)) ThrowInvalid(fmt::format("{}: unknown element type", ToString(kind)));
  if (dtype == DType::kString)
    ThrowInvalid(fmt::format("{}: strings are not exchanged", ToString(kind)));
  if (counts.size() != NumCounts(*this, size)) {
    ThrowInvalid(fmt::format("{} among {} ranks takes {} counts, got {}", ToString(kind), size,
                             NumCounts(*this, size), counts.size()));
  }
  for (const int64_t count : counts) {
    if (count < 0) ThrowInvalid(fmt::format("{} of {} elements", ToString(kind), count));
  }
  if (root < 0 || root >= size)
    ThrowInvalid(fmt::format("{}: root {} of {} ranks", ToString(kind), root, size));
  if (Reduces(kind)) CheckReduction(*this);
  CheckBuffers(*this);
}

std::string Exchange::Describe() const {
  std::string text = ToString(kind);
  if (kind == Kind::kBarrier) return text;
  if (Reduces(kind)) text += fmt::format(" ({})", ToString(reduction));
  if (kind == Kind::kBroadcast) text += fmt::format(" from rank {}", root);
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  text += fmt::format(" of {} {}", total, ToString(dtype));
  return name.empty() ? text : text + " " + Quote(name);
}

bool Exchange::Matches(const Exchange& other) const {
  return kind == other.kind && dtype == other.dtype && counts == other.counts &&
         (!Reduces(kind) || reduction == other.reduction) && root == other.root;
}

}  // namespace coracle
