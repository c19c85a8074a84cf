#include <coracle/distribute/step_forecast.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

constexpr int64_t kMeetingBytes = 16;

struct Event {
  double at = 0;
  bool waits = false;  // for the exchange; else begins it
  size_t exchange = 0;
};

// Gradients that are exchanged together are one exchange, which begins with the last of them.
std::vector<StepTimeline::Part> WithBuckets(const StepTimeline& step, double bucket_mb) {
  constexpr size_t kNone = SIZE_MAX;
  std::vector<StepTimeline::Part> exchanges;
  size_t open = kNone;
  for (const StepTimeline::Part& part : step.exchanges) {
    if (!part.bucketed || open == kNone) {
      exchanges.push_back(part);
      if (!part.bucketed) continue;
      open = exchanges.size() - 1;
    } else {
      StepTimeline::Part& bucket = exchanges[open];
      bucket.bytes += part.bytes;
      bucket.begins = std::max(bucket.begins, part.begins);
      bucket.needed = std::min(bucket.needed, part.needed);
    }
    if (static_cast<double>(exchanges[open].bytes) >= bucket_mb * 1e6) open = kNone;
  }
  return exchanges;
}

}  // namespace

double ExchangeSeconds(Exchange::Kind kind, int64_t bytes, int ranks, const Network& network) {
  if (ranks < 2) return 0;
  const double n = ranks, all = static_cast<double>(bytes) / network.bandwidth;
  const double steps = std::ceil(std::log2(n));
  switch (kind) {
    case Exchange::Kind::kAllReduce: {
      const double ring = 2 * (n - 1) * (network.latency + all / n);
      const double tree = 2 * steps * (network.latency + all);
      return std::min(ring, tree);
    }
    case Exchange::Kind::kAllGather:
      return steps * network.latency + (n - 1) * all;
    case Exchange::Kind::kReduceScatter:
      return steps * network.latency + (n - 1) / n * all;
    case Exchange::Kind::kBroadcast:
      return steps * (network.latency + all);
    case Exchange::Kind::kBarrier:
      break;
  }
  return steps * network.latency;
}

StepForecast ForecastStep(const StepTimeline& step, int ranks, double bucket_mb,
                          const Network& network) {
  const std::vector<StepTimeline::Part> exchanges = WithBuckets(step, bucket_mb);
  std::vector<Event> events;
  for (size_t i = 0; i < exchanges.size(); ++i) {
    events.push_back({exchanges[i].begins, false, i});
    events.push_back({std::max(exchanges[i].needed, exchanges[i].begins), true, i});
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.at != b.at ? a.at < b.at : a.waits < b.waits;
  });
  const double meeting = ExchangeSeconds(Exchange::Kind::kAllReduce, kMeetingBytes, ranks, network);
  StepForecast forecast;
  std::vector<double> end(exchanges.size());
  double free = 0;  // when the network is
  for (const Event& event : events) {
    const double now = event.at + forecast.exposed;
    if (event.waits) {
      forecast.exposed += std::max(0.0, end[event.exchange] - now);
      continue;
    }
    const StepTimeline::Part& part = exchanges[event.exchange];
    const double seconds = meeting + ExchangeSeconds(part.kind, part.bytes, ranks, network);
    forecast.exchanges += seconds;
    free = end[event.exchange] = std::max(free, now) + seconds;
  }
  forecast.seconds = step.seconds + forecast.exposed;
  return forecast;
}

}  // namespace coracle
