// Traces: what is recorded, and the file that viewers read.
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/trace.h>
#include <coracle/test/threads.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

namespace coracle::trace_test {

using Json = nlohmann::json;

std::vector<Json> EventsOf(const Trace& trace, const std::string& phase) {
  std::vector<Json> events;
  const Json file = Json::parse(trace.ToJson());
  for (const Json& event : file["traceEvents"])
    if (event["ph"] == phase) events.push_back(event);
  return events;
}

TEST(Trace, NothingIsRecordedWithoutOne) {
  EXPECT_EQ(Trace::Current(), nullptr);
  TraceSpan span("a", "b");
  EXPECT_FALSE(span);
  span.Set("key", int64_t{1});
  Trace trace;
  EXPECT_TRUE(EventsOf(trace, "X").empty());
}

TEST(Trace, SpansNestAndHaveTheirArgs) {
  Trace trace;
  {
    const ScopedTrace recording(trace);
    TraceSpan outer("test", "outer \"\x01\xff");
    outer.Set("count", int64_t{7});
    outer.Set("text", std::string("x"));
    const TraceSpan inner("test", "inner");
  }
  EXPECT_EQ(Trace::Current(), nullptr);
  const std::vector<Json> spans = EventsOf(trace, "X");
  ASSERT_EQ(spans.size(), 2u);  // by their begin, outer ones first
  EXPECT_EQ(spans[0]["name"], "outer \"\x01\xEF\xBF\xBD");
  EXPECT_EQ(spans[0]["args"], Json({{"count", 7}, {"text", "x"}}));
  EXPECT_EQ(spans[1]["name"], "inner");
  EXPECT_LE(spans[0]["ts"].get<double>(), spans[1]["ts"].get<double>());
  EXPECT_GE(spans[0]["ts"].get<double>() + spans[0]["dur"].get<double>() + 1e-9,
            spans[1]["ts"].get<double>() + spans[1]["dur"].get<double>());
  EXPECT_EQ(Json::parse(trace.ToJson())["format"], "coracle.trace");
}

TEST(Trace, ThreadsHaveNumbersAndNames) {
  Trace trace;
  {
    const ScopedTrace recording(trace);
    { const TraceSpan here("test", "here"); }
    std::thread([] {
      Trace::NameThread("other");
      const TraceSpan there("test", "there");
    }).join();
  }
  const std::vector<Json> spans = EventsOf(trace, "X");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_NE(spans[0]["tid"], spans[1]["tid"]);
  std::map<std::string, int> threads;
  for (const Json& event : EventsOf(trace, "M"))
    if (event["name"] == "thread_name") threads[event["args"]["name"]] = event["tid"];
  EXPECT_EQ(threads,
            (std::map<std::string, int>{{"main", spans[0]["tid"]}, {"other", spans[1]["tid"]}}));
}

// An op that runs a block holds 100 bytes while the ops inside of it have 50 and 20.
TEST(Trace, WorkspaceInUseIsThatOfAllOpenOps) {
  Trace trace;
  const auto label = [&](const char* name, int64_t workspace) {
    return trace.AddLabel({"op", name, {}, workspace});
  };
  trace.AddSpan(label("a", 50), 10'000, 20'000);
  trace.AddSpan(label("b", 20), 20'000, 30'000);
  trace.AddSpan(label("while", 100), 5'000, 40'000);
  trace.AddSpan(TraceLabel{"run", "run"}, 0, 50'000);
  std::vector<std::pair<double, int64_t>> counts;
  for (const Json& event : EventsOf(trace, "C")) {
    EXPECT_EQ(event["name"], "workspace in use");
    counts.emplace_back(event["ts"], event["args"]["bytes"]);
  }
  EXPECT_EQ(counts,
            (std::vector<std::pair<double, int64_t>>{{5, 100}, {10, 150}, {20, 120}, {50, 0}}));
}

TEST(Trace, KeepsTheFirstEventsAndTellsOfTheOthers) {
  Trace trace({.runs = 1, .events = 3});
  EXPECT_EQ(trace.Note(), "");
  const ScopedTrace recording(trace);
  for (int i = 0; i < 5; ++i) const TraceSpan span("test", "span");
  EXPECT_EQ(EventsOf(trace, "X").size(), 3u);
  EXPECT_EQ(trace.Note(), "2 events after the first 3 are left out");
  trace.CountRun(true);
  trace.CountRun(false);
  EXPECT_EQ(trace.Note(),
            "ops of 1 of 2 runs are recorded: the first 1 of each program; 2 events after the "
            "first 3 are left out");
}

// Parts of a loop that other threads run are shown on these threads, under the op's name.
TEST(Trace, HelpersShowWhatTheyHelpWith) {
  const Threads threads(4);
  Trace trace;
  const ScopedTrace recording(trace);
  for (int tries = 0; tries < 200; ++tries) {
    const TraceSpan op(trace, trace.AddLabel({"op", "sum", {{"type", std::string("sum")}}, 8}));
    std::atomic<int> count{0};
    ParallelFor(4, 1, [&](int64_t, int64_t) {
      ++count;
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
      while (count < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    });
    bool helped = false;
    for (const Json& event : EventsOf(trace, "X")) {
      EXPECT_EQ(event["name"], "sum");
      EXPECT_EQ(event["cat"], "part");  // the op's own span is still open
      helped = true;
    }
    if (helped) return;
  }
  FAIL() << "no other thread ever helped";
}
}  // namespace coracle::trace_test
