#include <coracle/distribute/step_forecast.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace coracle {
namespace {

constexpr int64_t kMeetingBytes = 16;

struct Event {
  double at = 0;
  bool waits = false;  // for the exchange; else begins it
  size_t exchange = 0;
};

// An exchange, which is several messages where it is of several gradients.
struct Bucket : StepTimeline::Part {
  std::vector<int64_t> messages;  // bytes
  int64_t packed = 0;             // bytes that are copied together to become one message
};

// How MPI's communicator exchanges what the bucket holds.
void MakeMessages(Bucket* bucket) {
  if (bucket->kind == Exchange::Kind::kReduceScatter) {
    bucket->messages = {bucket->bytes};
    bucket->packed = bucket->bytes;
    return;
  }
  if (bucket->messages.size() == 1) return;
  std::erase_if(bucket->messages, [&](int64_t bytes) {
    const bool packed = bytes < Exchange::kPackedBytes;
    bucket->packed += packed ? bytes : 0;
    return packed;
  });
  if (bucket->packed > 0) bucket->messages.push_back(bucket->packed);
}

// Gradients that are exchanged together are one exchange, which begins with the last of them.
std::vector<Bucket> WithBuckets(const StepTimeline& step, double bucket_mb) {
  std::vector<Bucket> exchanges;
  std::map<Exchange::Kind, size_t> open;  // of bucketed parts
  for (const StepTimeline::Part& part : step.exchanges) {
    const auto at = part.bucketed ? open.find(part.kind) : open.end();
    if (at == open.end()) {
      exchanges.push_back({part, {part.bytes}, 0});
      if (!part.bucketed) continue;
      open[part.kind] = exchanges.size() - 1;
    } else {
      Bucket& bucket = exchanges[at->second];
      bucket.messages.push_back(part.bytes);
      bucket.bytes += part.bytes;
      bucket.begins = std::max(bucket.begins, part.begins);
      bucket.needed = std::min(bucket.needed, part.needed);
    }
    const Bucket& bucket = exchanges[open[part.kind]];
    if (static_cast<double>(bucket.bytes) >= bucket_mb * 1e6) open.erase(part.kind);
  }
  for (Bucket& bucket : exchanges) MakeMessages(&bucket);
  return exchanges;
}

// Of an exchange, with all that comes before it and after it.
double SecondsOf(const Bucket& exchange, int ranks, const Network& network) {
  if (ranks < 2) return 0;
  double seconds = network.work.handover +
                   static_cast<double>(exchange.packed) * network.work.packing +
                   ExchangeSeconds(Exchange::Kind::kAllReduce, kMeetingBytes, ranks, network);
  for (const int64_t bytes : exchange.messages)
    seconds += ExchangeSeconds(exchange.kind, bytes, ranks, network);
  return seconds;
}

}  // namespace

double ExchangeSeconds(Exchange::Kind kind, int64_t bytes, int ranks, const Network& network) {
  if (ranks < 2) return 0;
  const double n = ranks, all = static_cast<double>(bytes) / network.bandwidth;
  const double steps = std::ceil(std::log2(n));
  const double added = static_cast<double>(bytes) * network.work.adding;
  switch (kind) {
    case Exchange::Kind::kAllReduce: {
      const double ring = 2 * (n - 1) * (network.latency + all / n) + (n - 1) / n * added;
      const double tree = 2 * steps * (network.latency + all) + steps * added;
      return std::min(ring, tree);
    }
    case Exchange::Kind::kAllGather:
      return steps * network.latency + (n - 1) * all;
    case Exchange::Kind::kReduceScatter:
      return steps * network.latency + (n - 1) / n * (all + added);
    case Exchange::Kind::kBroadcast:
      return steps * (network.latency + all);
    case Exchange::Kind::kBarrier:
      break;
  }
  return steps * network.latency;
}

double ExpectedMaximum(std::vector<double> values, int draws) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double expected = 0, below = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double upto = std::pow(static_cast<double>(i + 1) / n, draws);
    expected += values[i] * (upto - below);
    below = upto;
  }
  return expected;
}

StepForecast ForecastStep(const StepTimeline& step, int ranks, double bucket_mb,
                          const Network& network) {
  std::vector<double> measured = step.measured;
  if (measured.empty()) measured = {step.seconds};
  const double slowest = ExpectedMaximum(measured, ranks);
  const double slower = step.seconds > 0 ? slowest / step.seconds : 1;
  std::vector<Bucket> exchanges = WithBuckets(step, bucket_mb);
  for (Bucket& part : exchanges) {
    part.begins *= slower;
    part.needed = network.work.beside_ops ? part.needed * slower : part.begins;
  }
  std::vector<Event> events;
  for (size_t i = 0; i < exchanges.size(); ++i) {
    events.push_back({exchanges[i].begins, false, i});
    events.push_back({std::max(exchanges[i].needed, exchanges[i].begins), true, i});
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.at != b.at ? a.at < b.at : a.waits < b.waits;
  });
  StepForecast forecast;
  std::vector<double> end(exchanges.size());
  double free = 0;  // when the network is
  for (const Event& event : events) {
    const double now = event.at + forecast.exposed;
    if (event.waits) {
      forecast.exposed += std::max(0.0, end[event.exchange] - now);
      continue;
    }
    const double seconds = SecondsOf(exchanges[event.exchange], ranks, network);
    forecast.exchanges += seconds;
    free = end[event.exchange] = std::max(free, now) + seconds;
  }
  forecast.seconds = slowest + forecast.exposed;
  forecast.later = slowest - ExpectedMaximum(measured, 1);
  return forecast;
}

}  // namespace coracle
