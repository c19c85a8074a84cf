#include <coracle/distribute/step_forecast.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

struct Event {
  double at = 0;
  bool waits = false;  // for the exchange; else begins it
  size_t bucket = 0;
};

struct Bucket {
  int64_t bytes = 0;
  double complete = 0, needed = 0;
};

std::vector<Bucket> MakeBuckets(const StepTimeline& step, double bucket_mb) {
  std::vector<Bucket> buckets;
  bool open = false;
  for (const StepTimeline::Gradient& gradient : step.gradients) {
    if (!open) buckets.push_back({0, 0, gradient.needed});
    Bucket& bucket = buckets.back();
    bucket.bytes += gradient.bytes;
    bucket.complete = std::max(bucket.complete, gradient.complete);
    bucket.needed = std::min(bucket.needed, gradient.needed);
    open = static_cast<double>(bucket.bytes) < bucket_mb * 1e6;
  }
  return buckets;
}

}  // namespace

double AllReduceSeconds(int64_t bytes, int ranks, const Network& network) {
  if (ranks < 2) return 0;
  const double n = ranks, size = static_cast<double>(bytes), steps = std::ceil(std::log2(n));
  const double ring = 2 * (n - 1) * (network.latency + size / n / network.bandwidth);
  const double tree = 2 * steps * (network.latency + size / network.bandwidth);
  return std::min(ring, tree);
}

StepForecast ForecastStep(const StepTimeline& step, int ranks, double bucket_mb,
                          const Network& network) {
  const std::vector<Bucket> buckets = MakeBuckets(step, bucket_mb);
  std::vector<Event> events;
  for (size_t i = 0; i < buckets.size(); ++i) {
    events.push_back({buckets[i].complete, false, i});
    events.push_back({std::max(buckets[i].needed, buckets[i].complete), true, i});
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.at != b.at ? a.at < b.at : a.waits < b.waits;
  });
  StepForecast forecast;
  std::vector<double> end(buckets.size());
  double free = 0;  // when the network is
  for (const Event& event : events) {
    const double now = event.at + forecast.exposed;
    if (event.waits) {
      forecast.exposed += std::max(0.0, end[event.bucket] - now);
      continue;
    }
    const double seconds = AllReduceSeconds(buckets[event.bucket].bytes, ranks, network);
    forecast.exchanges += seconds;
    free = end[event.bucket] = std::max(free, now) + seconds;
  }
  forecast.seconds = step.seconds + forecast.exposed;
  return forecast;
}

}  // namespace coracle
