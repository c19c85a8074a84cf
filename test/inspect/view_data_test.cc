// The data of the page of `coracle view`: statistics, times, memory, paths.

#include <coracle/backward/gradient_tree.h>
#include <coracle/coracle.h>
#include <coracle/framework/base/trace.h>
#include <coracle/inspect/planned_memory.h>
#include <coracle/inspect/trace_times.h>
#include <coracle/inspect/value_statistics.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace coracle::view_data_test {

TEST(ValueStatistics, OfFiniteElements) {
  const ValueStatistics s =
      StatisticsOf(Tensor::Of<float>({2, 3}, {-2, 0, 1, 2, INFINITY, NAN}), 4);
  EXPECT_EQ(s.count, 6);
  EXPECT_EQ(s.zeros, 1);
  EXPECT_EQ(s.not_finite, 2);
  EXPECT_EQ(s.min, -2);
  EXPECT_EQ(s.max, 2);
  EXPECT_DOUBLE_EQ(s.mean, 0.25);
  EXPECT_DOUBLE_EQ(s.norm, 3);
  // The squared distances from 0.25 are 5.0625, 0.0625, 0.5625 and 3.0625.
  EXPECT_DOUBLE_EQ(s.deviation, std::sqrt(8.75 / 4));
  EXPECT_EQ(s.histogram, (std::vector<int64_t>{1, 0, 1, 2}));
}

TEST(ValueStatistics, OfEqualAbsentAndHugeElements) {
  const ValueStatistics same = StatisticsOf(Tensor::Of<int64_t>({3}, {7, 7, 7}), 4);
  EXPECT_EQ(same.histogram, (std::vector<int64_t>{3, 0, 0, 0}));
  EXPECT_EQ(same.deviation, 0);
  EXPECT_EQ(StatisticsOf(Tensor(DType::kFloat32, {0})).count, 0);
  EXPECT_EQ(StatisticsOf(Tensor::Of<double>({2}, {-1.7e308, 1.7e308}), 2).histogram,
            (std::vector<int64_t>{1, 1}));
}

// x -> relu -> a -> while { relu } -> ...: only what the trace needs.
ProgramDesc TwoOps() {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "a", "b"}) root.Var(name).SetShape({2});
  root.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"a"}}});
  root.AppendOp("tanh", {{"X", {"a"}}}, {{"Out", {"b"}}});
  return program;
}

TEST(TraceTimes, GoToTheOpThatWritesTheOutput) {
  const std::string trace = R"({"traceEvents": [
    {"ph": "X", "cat": "op", "name": "relu", "tid": 1, "ts": 0, "dur": 10, "args": {"output": "a"}},
    {"ph": "X", "cat": "op", "name": "tanh", "tid": 1, "ts": 20, "dur": 30, "args": {"output": "b"}},
    {"ph": "X", "cat": "op", "name": "sum", "tid": 1, "ts": 25, "dur": 4, "args": {"output": "c"}},
    {"ph": "X", "cat": "op", "name": "relu", "tid": 1, "ts": 60, "dur": 20, "args": {"output": "a"}},
    {"ph": "X", "cat": "pass", "name": "relu", "tid": 1, "ts": 90, "dur": 5},
    {"ph": "C", "name": "memory", "ts": 1, "args": {"bytes": 1}}, 7, null]})";
  const TraceTimes times = ReadTraceTimes(trace, "t.json", TwoOps());
  ASSERT_EQ(times.ops.size(), 2u);
  EXPECT_EQ(times.ops[0].op, 0u);
  EXPECT_EQ(times.ops[0].runs, 2u);
  EXPECT_DOUBLE_EQ(times.ops[0].seconds, 30e-6);
  EXPECT_DOUBLE_EQ(times.ops[1].seconds, 26e-6);  // without the op inside of it
  EXPECT_DOUBLE_EQ(times.without_op, 4e-6);
  EXPECT_DOUBLE_EQ(times.seconds, 60e-6);
}

// "op 2 of block 1, from ..." as the list `ops` of a trace has it; "" for another place.
std::string OpsAt(const std::string& place) {
  int op = 0, block = 0;
  if (std::sscanf(place.c_str(), "op %d of block %d", &op, &block) != 2) return "";
  return fmt::format(R"(,"ops":[[{},{}]])", block, op);
}

// A trace with a span for each {type, output, place}: the first takes 1 us, the second 2, ...; a
// type "run" begins a run of the compiled program with the number in `output`.
std::string TraceOf(const std::vector<std::array<std::string, 3>>& spans) {
  std::string events;
  const auto add = [&](const std::string& begin, double microseconds, const std::string& rest) {
    events += fmt::format(R"({}{{"ph":"X","tid":0,"ts":{},"dur":{},{}}})",
                          events.empty() ? "" : ",", begin, microseconds, rest);
  };
  int at = 0;
  double microseconds = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    const auto& [type, output, place] = spans[i];
    const std::string begin = std::to_string(100 * ++at);
    if (type == "run") {
      const auto next = std::find_if(spans.begin() + static_cast<ptrdiff_t>(i) + 1, spans.end(),
                                     [](const auto& span) { return span[0] == "run"; });
      const auto ops = static_cast<double>(next - spans.begin()) - static_cast<double>(i);
      add(begin, 100 * ops - 1,
          R"("cat":"run","name":"run","args":{"step":0)" +
              (output.empty() ? "" : ",\"program\":" + output) + "}");
    } else {
      add(begin, ++microseconds,
          fmt::format(R"("cat":"op","name":"{}","args":{{"output":"{}","place":"{}"{}}})", type,
                      output, place, OpsAt(place)));
    }
  }
  return "[" + events + "]";
}

// {block, op, us} of each op that the trace has times of, and {-1, 0, us} of none.
using Found = std::vector<std::array<double, 3>>;

Found TimesIn(const ProgramDesc& program, const std::vector<std::array<std::string, 3>>& spans) {
  const TraceTimes read = ReadTraceTimes(TraceOf(spans), "t.json", program);
  Found found;
  for (const TracedOp& op : read.ops)
    found.push_back({double(op.block), double(op.op), std::round(1e6 * op.seconds)});
  found.push_back({-1, 0, std::round(1e6 * read.without_op)});
  return found;
}

void AppendUnary(BlockDesc& block, const char* type, const char* in, const char* out,
                 const std::string& site = "") {
  block.AppendOp(type, {{"X", {in}}}, {{"Out", {out}}});
  if (site.empty()) return;
  block.op(block.NumOps() - 1).SetAttr(kOpCallstackAttr, std::vector<std::string>{site});
}

// Ops of one type that write one variable, in one block and in two branches.
TEST(TraceTimes, SeveralWritersOfAVariable) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "y", "z"}) root.Var(name).SetShape({2});
  AppendUnary(root, "relu", "x", "y");
  AppendUnary(root, "assign", "x", "y");
  AppendUnary(root, "assign", "x", "y");
  for (int b = 1; b < 3; ++b) AppendUnary(program.AppendBlock(root), "tanh", "x", "z");
  // Both of them, with other numbers in the compiled program.
  EXPECT_EQ(TimesIn(program, {{"assign", "y", "op 4 of block 0, from m.pbtxt:1:1"},
                              {"assign", "y", "op 2 of block 0"},
                              {"assign", "y", "op 4 of block 0"}}),
            (Found{{0, 1, 2}, {0, 2, 4}, {-1, 0, 0}}));
  EXPECT_EQ(TimesIn(program, {{"tanh", "z", "op 0 of block 1"}, {"tanh", "z", "op 1 of block 2"}}),
            (Found{{1, 0, 1}, {2, 0, 2}, {-1, 0, 0}}));
  // One of two: numbers of a compiled program are not the program's.
  EXPECT_EQ(TimesIn(program, {{"tanh", "z", "op 0 of block 2"}}), (Found{{-1, 0, 1}}));
  EXPECT_EQ(TimesIn(program, {{"assign", "y", "op 2 of block 0"}}), (Found{{-1, 0, 1}}));
  // Nothing is certain.
  EXPECT_EQ(TimesIn(program,
                    {{"tanh", "z", "op 7 of block 1"}, {"tanh", "z", ""}, {"fused", "y", "op 9"}}),
            (Found{{-1, 0, 6}}));
  // One writer of that type.
  EXPECT_EQ(TimesIn(program, {{"relu", "y", ""}}), (Found{{0, 0, 1}, {-1, 0, 0}}));
}

// Three ops of one type write y, each from another line.
TEST(TraceTimes, PlacesInTheTextTellWriters) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "y", "z"}) root.Var(name).SetShape({2});
  AppendUnary(root, "relu", "x", "z", "dir/m.pbtxt:2:1");
  for (const char* site : {"dir/m.pbtxt:3:1", "dir/m.pbtxt:5:1", "dir/m.pbtxt:7:1"})
    AppendUnary(root, "tanh", "x", "y", site);
  const auto tanh = [](int op, const std::string& site) {
    return std::array<std::string, 3>{
        "tanh", "y", fmt::format("op {} of block 0{}", op, site.empty() ? "" : ", from " + site)};
  };
  // One of three, in a program where passes removed another.
  EXPECT_EQ(TimesIn(program, {tanh(2, "m.pbtxt:7:1"), tanh(1, "other/m.pbtxt:5:1")}),
            (Found{{0, 2, 2}, {0, 3, 1}, {-1, 0, 0}}));
  // A fused op that was made at the place of another op of the program represents the op that
  // is left.
  EXPECT_EQ(
      TimesIn(program, {tanh(0, "m.pbtxt:2:1"), tanh(1, "m.pbtxt:5:1"), tanh(2, "m.pbtxt:7:1")}),
      (Found{{0, 1, 1}, {0, 2, 2}, {0, 3, 3}, {-1, 0, 0}}));
  // An op made at a place where the program has nothing belongs to another program.
  EXPECT_EQ(
      TimesIn(program, {tanh(0, "m.pbtxt:9:1"), tanh(1, "m.pbtxt:5:1"), tanh(2, "m.pbtxt:7:1")}),
      (Found{{0, 2, 2}, {0, 3, 3}, {-1, 0, 1}}));
}

// A trace of `train` has several compiled programs, in which the same op has different numbers.
TEST(TraceTimes, EachCompiledProgramByItself) {
  for (const bool sites : {false, true}) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    for (const char* name : {"x", "y", "z"}) root.Var(name).SetShape({2});
    for (int i = 0; i < 5; ++i) AppendUnary(root, "relu", "x", "z");
    const std::string first = sites ? "m.pbtxt:7:1" : "", second = sites ? "m.pbtxt:9:1" : "";
    AppendUnary(root, "tanh", "x", "y", first);
    AppendUnary(root, "relu", "x", "z");
    AppendUnary(root, "tanh", "x", "y", second);
    const auto tanh = [](int op, const std::string& site) {
      return std::array<std::string, 3>{
          "tanh", "y", fmt::format("op {} of block 0{}", op, site.empty() ? "" : ", from " + site)};
    };
    for (const bool numbered : {true, false}) {
      const std::string train = numbered ? "2" : "", evaluation = numbered ? "3" : "";
      EXPECT_EQ(TimesIn(program, {{"run", evaluation, ""},
                                  tanh(3, first),
                                  tanh(5, second),
                                  {"run", train, ""},
                                  tanh(1, first),
                                  tanh(3, second)}),
                (Found{{0, 5, 1 + 3}, {0, 7, 2 + 4}, {-1, 0, 0}}))
          << sites << numbered;
    }
    // Each run of the same program took another branch, say.
    EXPECT_EQ(
        TimesIn(program, {{"run", "2", ""}, tanh(3, first), {"run", "2", ""}, tanh(5, second)}),
        (Found{{0, 5, 1}, {0, 7, 2}, {-1, 0, 0}}));
  }
}

// w is a parameter that relu reads and sgd updates.
TEST(TraceTimes, InitialisersAreNotUpdates) {
  ProgramDesc main, startup;
  for (ProgramDesc* program : {&main, &startup}) {
    program->Root().Var("w").SetShape({2});
    program->Root().Var("w").SetPersistable(true);
  }
  main.Root().Var("y").SetShape({2});
  AppendUnary(main.Root(), "relu", "w", "y");
  AppendUnary(main.Root(), "sgd", "w", "w");
  AppendUnary(main.Root(), "assign", "w", "w");
  AppendUnary(startup.Root(), "fill_constant", "", "w");
  const std::vector<std::array<std::string, 3>> spans = {{"run", "1", ""},
                                                         {"fill_constant", "w", "op 0 of block 0"},
                                                         {"assign", "w", "op 1 of block 0"},
                                                         {"run", "2", ""},
                                                         {"relu", "y", "op 0 of block 0"},
                                                         {"sgd", "w", "op 1 of block 0"},
                                                         {"fused_elementwise", "y", ""}};
  EXPECT_EQ(TimesIn(main, spans), (Found{{0, 0, 3 + 5}, {0, 1, 4}, {-1, 0, 1 + 2}}));
  EXPECT_EQ(TimesIn(startup, spans), (Found{{0, 0, 1}, {-1, 0, 2 + 3 + 4 + 5}}));
  // A program whose passes leave nothing else to write.
  EXPECT_EQ(TimesIn(main, {{"sgd", "w", "op 0 of block 0"}}), (Found{{0, 1, 1}, {-1, 0, 0}}));
}

// A program of `count` updates: the parameter w0 has one element, w1 two, ...
ProgramDesc Updates(int count, const char* type = "sgd") {
  ProgramDesc program;
  for (int i = 0; i < count; ++i) {
    const std::string w = "w" + std::to_string(i);
    program.Root().Var(w).SetShape({i + 1});
    program.Root().Var(w).SetPersistable(true);
    AppendUnary(program.Root(), type, w.c_str(), w.c_str());
  }
  return program;
}

// The microseconds of each op where one span of 78 us has these `ops` (as JSON) and writes w0; -1
// for an op without time.
std::vector<double> SharesOf(const std::string& ops, const ProgramDesc& program) {
  const TraceTimes times = ReadTraceTimes(
      R"([{"ph":"X","cat":"op","name":"sgd","ts":0,"dur":78,"args":{"output":"w0","ops":)" + ops +
          "}}]",
      "t.json", program);
  std::vector<double> shares(program.Root().NumOps(), -1);
  double sum = times.without_op;
  for (const TracedOp& op : times.ops) {
    shares[op.op] = std::round(1e9 * op.seconds) / 1e3;
    sum += op.seconds;
  }
  EXPECT_NEAR(sum, 78e-6, 1e-12) << ops;
  return shares;
}

// More of them than a message lists: "ops 0, 1, ... and 4 more".
TEST(TraceTimes, MergedUpdatesShareTheTime) {
  std::string ops;
  for (int i = 0; i < 12; ++i) ops += fmt::format("{}[0,{}]", i ? "," : "", i);
  const std::string all = "[" + ops + "]";
  std::vector<double> by_elements;
  for (int i = 0; i < 12; ++i) by_elements.push_back(i + 1);
  EXPECT_EQ(SharesOf(all, Updates(12)), by_elements);
  // Where a shape is not known, each gets as much.
  ProgramDesc unknown = Updates(12);
  unknown.Root().FindVar("w3")->SetShape({-1});
  EXPECT_EQ(SharesOf(all, unknown), std::vector<double>(12, 6.5));
  // Ops of other types are not updates that passes merged with these.
  ProgramDesc other = Updates(12);
  other.Root().op(5).SetType("adam");
  std::vector<double> first(12, -1);
  first[0] = 78;
  EXPECT_EQ(SharesOf(all, other), first);
  // Some of them.
  std::vector<double> two(12, -1);
  two[0] = 78 * 1 / 13.0;
  two[11] = 78 * 12 / 13.0;
  EXPECT_EQ(SharesOf("[[0,0],[0,11]]", Updates(12)), two);
}

TEST(TraceTimes, OpsThatAreNoPairsOfNumbers) {
  const ProgramDesc program = Updates(3);
  for (const char* ops : {"null",
                          "7",
                          "\"ops\"",
                          "{}",
                          "[]",
                          "[7]",
                          "[[0]]",
                          "[[0,0,0]]",
                          "[[0,\"1\"]]",
                          "[[-1,0]]",
                          "[[0,-1]]",
                          "[[0.5,1]]",
                          "[[1e30,0]]",
                          "[[4294967296,0]]",
                          "[[0,18446744073709551615]]",
                          "[[2147483647,0]]",
                          "[[0,0],null]",
                          "[[0,0],[0,77]]",
                          "[[0,0],[9,1]]",
                          "[[[0,0]]]"})
    EXPECT_EQ(SharesOf(ops, program), (std::vector<double>{78, -1, -1})) << ops;
}

// A training program's own trace: its updates run as one op, and each has its time.
TEST(TraceTimes, OfAProgramWithMergedUpdates) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable h = net.Data("x", {-1, 4});
  for (int i = 0; i < 6; ++i) h = net.Fc(h, {.size = 4, .act = "relu"});
  Sgd({.learning_rate = 0.1}).Minimize(net.Mean(h), startup);
  Scope scope;
  Executor().Run(startup, scope);
  Trace trace;
  {
    const ScopedTrace recording(trace);
    Executor().Run(main, scope, {{"x", Tensor::Full<float>({2, 4}, 1)}}, {});
  }
  const TraceTimes times = ReadTraceTimes(trace.ToJson(), "t.json", main);
  int updates = 0;
  for (const TracedOp& op : times.ops) updates += main.Block(op.block).op(op.op).type() == "sgd";
  EXPECT_EQ(updates, 12);
}

// In floats 0.1 + 0.2 is more than 0.3: the second op is not inside of the first.
TEST(TraceTimes, AnOpMayBeginWhereAnotherEnds) {
  const TraceTimes times = ReadTraceTimes(R"([
    {"ph": "X", "cat": "op", "name": "relu", "ts": 0.1, "dur": 0.2, "args": {"output": "a"}},
    {"ph": "X", "cat": "op", "name": "tanh", "ts": 0.3, "dur": 5, "args": {"output": "b"}}])",
                                          "t.json", TwoOps());
  ASSERT_EQ(times.ops.size(), 2u);
  EXPECT_DOUBLE_EQ(times.ops[0].seconds, 0.2e-6);
}

TEST(TraceTimes, RefusesWhatIsNone) {
  for (const char* text : {"", "{", "[]", "{}", "{\"traceEvents\": 1}", "[{\"ph\": \"X\"}]"})
    EXPECT_THROW(ReadTraceTimes(text, "t.json", TwoOps()), Error) << text;
}

// A network with a branch, its gradients and updates.
struct Net {
  ProgramDesc main, startup;
  std::string loss;

  Net() {
    Builder net(main, startup);
    Variable x = net.Data("x", {-1, 8});
    Variable h = net.Fc(x, {.size = 16, .act = "relu"});
    Variable side = net.Fc(h, {.size = 16, .act = "tanh"});
    Variable y = net.Fc(h + side, {.size = 1});
    Variable mean = net.Mean(y);
    loss = mean.name();
  }
};

TEST(PlannedMemory, StoragesInUseDoNotOverlap) {
  Net net;
  const PlannedMemory memory = PlanMemory(net.main, Scope(), DefaultOps());
  EXPECT_EQ(memory.ends, "");
  ASSERT_GT(memory.storages.size(), 1u);
  ASSERT_EQ(memory.in_use.size(), memory.steps.size());
  uint64_t end = 0;
  for (size_t i = 0; i < memory.storages.size(); ++i) {
    const PlannedStorage& a = memory.storages[i];
    end = std::max(end, a.offset + a.bytes);
    EXPECT_LE(a.first, a.last);
    EXPECT_LT(a.last, memory.steps.size());
    for (size_t k = 0; k < i; ++k) {
      const PlannedStorage& b = memory.storages[k];
      const bool together = a.first <= b.last && b.first <= a.last;
      EXPECT_TRUE(!together || a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
    }
  }
  EXPECT_LE(end, memory.arena_bytes);
  for (uint64_t bytes : memory.in_use) EXPECT_LE(bytes, memory.arena_bytes);
}

// The tree's path, from the root's side.
std::vector<GradientStep> PathTo(const GradientTree& tree, const std::string& name) {
  std::vector<GradientStep> path;
  const auto start = tree.starts.find(name);
  if (start == tree.starts.end()) return path;
  for (int32_t i = start->second; i >= 0; i = tree.steps[static_cast<size_t>(i)].next) {
    const GradientTreeStep& step = tree.steps[static_cast<size_t>(i)];
    for (auto inner = step.inside.rbegin(); inner != step.inside.rend(); ++inner)
      path.push_back(inner->step);
    path.push_back(step.step);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

TEST(GradientTree, HasThePathsOfExplainGradient) {
  Net net;
  const GradientTree tree = MakeGradientTree(net.main, net.loss);
  const std::vector<std::string> parameters = net.main.Parameters();
  ASSERT_EQ(parameters.size(), 6u);
  std::vector<std::string> names = parameters;
  names.push_back("x");
  for (const std::string& name : names) {
    const GradientExplanation told = ExplainGradient(net.main, net.loss, name);
    const std::vector<GradientStep> path = PathTo(tree, name);
    ASSERT_EQ(path.size(), told.path.size()) << name;
    for (size_t i = 0; i < path.size(); ++i) {
      EXPECT_EQ(path[i].from, told.path[i].from);
      EXPECT_EQ(path[i].to, told.path[i].to);
      EXPECT_EQ(path[i].op, told.path[i].op);
      EXPECT_EQ(path[i].to_slot, told.path[i].to_slot);
      EXPECT_EQ(path[i].obstacle, told.path[i].obstacle);
    }
    if (name == "x") continue;
    EXPECT_EQ(tree.contributions.at(name), static_cast<int32_t>(told.contributions.size())) << name;
  }
  EXPECT_THROW(MakeGradientTree(net.main, "no such"), Error);
}
}  // namespace coracle::view_data_test
