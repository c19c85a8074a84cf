#include <coracle/framework/base/file.h>
#include <coracle/framework/base/latency.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/log/plot.h>
#include <coracle/train/run/time_model.h>

#include <cmath>
#include <limits>

namespace coracle::plot_test {

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

PlotRun MakeRun(const std::string& name) {
  PlotRun run{name, {}};
  run.series.push_back({"train/loss", {}});
  for (int i = 1; i <= 50; ++i) run.series[0].points.emplace_back(i * 10, 2.0 / i);
  run.series.push_back({"test/loss", {{250, 0.5}, {500, 0.25}}});
  run.series.push_back({"learning_rate", {{100, 0.01}, {500, 0.001}}});
  return run;
}

TEST(Plot, Ticks) {
  EXPECT_EQ(RoundTicks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(RoundTicks(1, 100, 6), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(RoundTicks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  for (double low : {-3.7, 0.0, 0.0123, 5e-9})
    for (double size : {1e-6, 0.37, 12.0, 7e8}) {
      const std::vector<double> ticks = RoundTicks(low, low + size, 6);
      ASSERT_GE(ticks.size(), 3u);
      EXPECT_LE(ticks.size(), 12u);
      EXPECT_LE(ticks.front(), low + 1e-6 * size);
      EXPECT_GE(ticks.back(), low + size * (1 - 1e-6));
    }
}

TEST(Plot, APanelForEachValueALineForEachSet) {
  const std::string svg = PlotSvg({MakeRun("a"), MakeRun("<b>")});
  EXPECT_EQ(Count(svg, "class=\"title\""), 2u);  // loss, learning_rate
  EXPECT_EQ(Count(svg, "<path "), 6u);
  EXPECT_NE(svg.find(">&lt;b&gt; test</text>"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_EQ(Count(svg, "http"), 1u);  // the name space; nothing is fetched
  // Line of test loss: from the highest tick's place down; y grows downwards.
  const PlotRun one = {"one", {{"test/loss", {{0, 1.0}, {10, 0.0}}}}};
  EXPECT_NE(PlotSvg({one}).find("d=\"M68.0,80.0L502.0,332.0\""), std::string::npos)
      << PlotSvg({one});
}

// With several runs, a run has one colour in all panels, and further test sets are dashed.
TEST(Plot, EachRunHasAColor) {
  PlotRun a = MakeRun("a"), b = MakeRun("b");
  b.series.push_back({"other/loss", {{250, 0.7}, {500, 0.6}}});
  const std::string svg = PlotSvg({a, b});
  // Three lines of a and four of b, each with its entry in a legend and marks of its points: a has
  // 2 of test loss and 2 of the rate (50 points of training are not marked), b has 2 more.
  EXPECT_EQ(Count(svg, "stroke=\"#0072b2\""), 6u);
  EXPECT_EQ(Count(svg, "stroke=\"#d55e00\""), 8u);
  EXPECT_EQ(Count(svg, "fill=\"#0072b2\""), 4u);
  EXPECT_EQ(Count(svg, "fill=\"#d55e00\""), 6u);
  EXPECT_EQ(Count(svg, "stroke-dasharray"), 2u);  // the line and its legend
}

TEST(Plot, LabelsOfWideLogarithmicAxesHaveRoom) {
  const PlotRun run = {"r", {{"train/loss", {{1, 1e-250}, {2, 1e250}}}}};
  const std::string svg = PlotSvg({run}, true);
  const size_t labels = Count(svg, "text-anchor=\"end\" class=\"tick\"");
  EXPECT_GE(labels, 5u);
  EXPECT_LE(labels, 16u);
}

// Names are in rows below the panel, where they hide nothing; a panel's only line has no name if it
// equals the panel's name.
TEST(Plot, LegendIsBelowThePanel) {
  const PlotRun one = {"one", {{"test/loss", {{0, 1.0}, {10, 0.0}}}, {"rate", {{0, 1.0}}}}};
  const std::string svg = PlotSvg({one});
  // The head and the panel are 46 + 330 high, the axis ends at 332.
  EXPECT_NE(svg.find("<text x=\"91.0\" y=\"384.0\" text-anchor=\"start\" class=\"tick\">test<"),
            std::string::npos);
  EXPECT_NE(svg.find("height=\"392\""), std::string::npos);
  EXPECT_EQ(Count(svg, ">rate</text>"), 1u);  // the title
  // Cut between characters: 16 of two bytes are more than 31 bytes.
  std::string name;
  for (int i = 0; i < 40; ++i) name += "\xC3\xA9";
  PlotRun two = one;
  two.name = name;
  const std::string both = PlotSvg({one, two, two});
  EXPECT_NE(both.find(">" + name.substr(0, 30) + "...</text>"), std::string::npos);
  EXPECT_NE(both.find("y=\"400.0\""), std::string::npos);  // a second row
}

TEST(Plot, WhatIsNotFiniteIsLeftOut) {
  const PlotRun run = {"r", {{"train/loss", {{1, 1.0}, {2, NAN}, {3, 2.0}, {4, 3.0}}}}};
  const std::string svg = PlotSvg({run});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(Count(svg.substr(svg.find("<path")), "M"), 2u);  // a gap
  const PlotRun none = {"r", {{"train/loss", {{1, NAN}}}}};
  ExpectContains(ErrorOf([&] { PlotSvg({none}); }), "nothing to draw");
}

TEST(Plot, LogScale) {
  const std::string svg = PlotSvg({MakeRun("a")}, true);
  EXPECT_NE(svg.find(">0.1</text>"), std::string::npos);
}

TEST(Plot, ReadsTheLogOfARun) {
  TempDir dir;
  WriteFileAtomic(
      dir / "run7/log.jsonl",
      "{\"type\":\"step\",\"step\":3,\"values\":{\"loss\":null},\"learning_rates\":{}}\n");
  EXPECT_EQ(ReadPlotRun(dir / "run7").name, "run7");
  EXPECT_TRUE(std::isnan(ReadPlotRun(dir / "run7/log.jsonl").series[0].points[0].second));
}

TEST(TimeModel, Percentiles) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(Percentile(values, 50), 50);
  EXPECT_EQ(Percentile(values, 90), 90);
  EXPECT_EQ(Percentile(values, 99), 99);
  EXPECT_EQ(Percentile({3, 1, 2}, 50), 2);
  EXPECT_EQ(Percentile({7}, 99), 7);
  EXPECT_EQ(Percentile({}, 50), 0);
}

TEST(TimeModel, EveryLayerHasItsParts) {
  TimeOptions options;
  options.iterations = 5;
  options.batch_size = 8;
  const ModelTimes times = TimeModel(ParseModelText(kSmallModel, "m.pbtxt"), options);
  EXPECT_EQ(times.steps.size(), 5u);
  std::vector<std::string> names;
  for (const LayerTime& layer : times.layers) names.push_back(layer.layer);
  EXPECT_EQ(names,
            (std::vector<std::string>{"h", "d", "logits", "ce", "loss", "acc", "prob", "(other)"}));
  EXPECT_EQ(times.layers[0].place, "m.pbtxt:4:9");
  auto median = [&](size_t layer, StepPart part) {
    return Percentile(times.layers[layer].seconds[static_cast<size_t>(part)], 50);
  };
  for (size_t fc : {0, 2})
    for (StepPart part : {StepPart::kForward, StepPart::kBackward, StepPart::kUpdate})
      EXPECT_GT(median(fc, part), 0) << names[fc];
  EXPECT_GT(median(1, StepPart::kBackward), 0);  // dropout has a gradient, but no parameter
  EXPECT_EQ(median(1, StepPart::kUpdate), 0);
  EXPECT_EQ(median(6, StepPart::kForward), 0);  // prob is not needed for the loss
  // The layers are all of the total, and that lies within the whole step.
  for (size_t run = 0; run < 5; ++run) {
    double all = 0;
    for (size_t part = 0; part < 3; ++part) {
      double sum = 0;
      for (const LayerTime& layer : times.layers) sum += layer.seconds[part][run];
      EXPECT_NEAR(sum, times.total.seconds[part][run], 1e-12);
      all += sum;
    }
    EXPECT_LE(all, times.steps[run]);
  }
  const std::string text = times.ToString();
  ExpectContains(text, "batch of 8, 5 runs, milliseconds");
  ExpectContains(text, "whole step");
  ExpectContains(text, "mul+elementwise_add+relu");

  options.loss = "no such";  // forward only
  for (const LayerTime& layer : TimeModel(ParseModelText(kSmallModel), options).layers)
    EXPECT_EQ(Percentile(layer.seconds[1], 99), 0);
}

// The update lies in blocks that run at every second batch, if nothing overflows: their ops are
// found, and what runs inside of another op counts once.
TEST(TimeModel, StepsOfJobs) {
  const std::vector<std::string> texts = {
      "iter_size: 2 optimizer { momentum {} gradient_clip { by_global_norm { clip_norm: 1 } } }",
      "iter_size: 2 mixed_precision { dtype: FLOAT16 } optimizer { params: \"fc_0*\" adam {} } "
      "optimizer { params: \"fc_1*\" sgd {} gradient_clip { by_global_norm { clip_norm: 1 } } }",
      "mixed_precision { dtype: BFLOAT16 level: O2 } optimizer { adam {} }"};
  for (const std::string& text : texts) {
    SCOPED_TRACE(text);
    JobConfig job = ParseJobText(text + " batch_size: 8");
    job.model_text = kSmallModel;
    TimeOptions options;
    options.iterations = 3;
    const ModelTimes times = TimeJob(job, options);
    EXPECT_EQ(times.batches, job.training.iter_size);
    ASSERT_EQ(times.steps.size(), 3u);
    std::vector<std::string> names;
    for (const LayerTime& layer : times.layers) names.push_back(layer.layer);
    EXPECT_EQ(names, (std::vector<std::string>{"h", "d", "logits", "ce", "loss", "acc", "prob",
                                               "(other)"}));
    EXPECT_TRUE(times.shared);
    for (size_t run = 0; run < 3; ++run) {
      for (size_t fc : {0, 2})
        for (size_t part = 0; part < 3; ++part)
          EXPECT_GT(times.layers[fc].seconds[part][run], 0) << names[fc] << part;
      EXPECT_EQ(times.layers.back().seconds[0][run], 0);  // no forward op is lost
      double all = 0;
      for (size_t part = 0; part < 3; ++part) {
        double sum = 0;
        for (const LayerTime& layer : times.layers) sum += layer.seconds[part][run];
        EXPECT_NEAR(sum, times.total.seconds[part][run], 1e-12);
        all += sum;
      }
      EXPECT_LE(all, times.steps[run]);
    }
    const std::string table = times.ToString();
    ExpectContains(table, job.training.iter_size == 2
                              ? "2 batches of 8 a step, 3 steps, milliseconds\n"
                              : "batch of 8, 3 runs, milliseconds\n");
    ExpectContains(table,
                   "\nAn op that updates the parameters of several layers counts for each by its "
                   "parameters' elements.\n");
  }
}

// Each round of a repeat is a layer: called by its result, or by its own name.
TEST(TimeModel, RoundsOfARepeatAreLayers) {
  TimeOptions options;
  options.iterations = 2;
  options.batch_size = 4;
  const ModelTimes times = TimeModel(ParseModelText(R"(
data { name: "x0" shape: [-1, 2, 4, 4] }
layer { repeat { times: 2
  layer { conv2d { input: "x$i" num_filters: 2 filter_size: 1 output: "c$i" } }
  layer { repeat { times: 2 index: "k"
    layer { batch_norm { input: "c$i" name: "b${i}${k}_bn" } } } }
  layer { relu { input: "c$i" output: "x${i+1}" } } } }
layer { repeat { times: 3 layer { fc { input: "x2" size: 2 name: "head$i" } } } }
layer { mean { input: "x2" output: "loss" } })"),
                                     options);
  std::vector<std::string> names;
  for (const LayerTime& layer : times.layers) {
    names.push_back(layer.layer);
    EXPECT_EQ(layer.place.find('\n'), std::string::npos);
    // The loss needs what is called c and x, nothing needs what is called head.
    const char first = names.back()[0];
    for (size_t part = 0; part < 2; ++part) {
      if (first == 'c' || first == 'x') {
        EXPECT_GT(layer.seconds[part][0], 0) << layer.layer << part;
      }
      if (first == 'h') {
        EXPECT_EQ(layer.seconds[part][0], 0) << layer.layer << part;
      }
    }
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"c0", "b00_bn", "b01_bn", "x1", "c1", "b10_bn", "b11_bn",
                                      "x2", "head0", "head1", "head2", "loss", "(other)"}));
}

// In a saved model passes make one op of all rounds, and of a convolution and its batch_norm: each
// round has its part by its arithmetic. Rounds 0 to 2 do the same, round 3 has half the channels.
TEST(TimeModel, FusedRoundsHaveTheirParts) {
  const BuiltModel model = ParseModelText(R"(
data { name: "x0" shape: [-1, 8, 16, 16] }
layer { repeat { times: 3
  layer { conv2d { input: "x$i" num_filters: 8 filter_size: 3 padding: 1 output: "c$i" } }
  layer { batch_norm { input: "c$i" name: "b${i}_bn" output: "x${i+1}" } } } }
layer { conv2d { input: "x3" num_filters: 4 filter_size: 3 padding: 1 output: "c3" } })");
  Scope scope;
  Executor().Run(model.startup, scope);
  TempDir dir;
  SaveInferenceModel(dir / "m", {"x0"}, {"c3"}, model.main, scope);
  TimeOptions options;
  options.iterations = 2;
  options.batch_size = 2;
  const ModelTimes times = TimeSavedModel(dir / "m.pdmodel", options);
  ASSERT_EQ(times.layers.size(), 8u);  // c0, x1, ..., c3, and the rest
  std::array<double, 4> rounds = {};
  for (size_t i = 0; i < 7; ++i) rounds[i / 2] += times.layers[i].seconds[0][0];
  for (const double seconds : rounds) EXPECT_GT(seconds, 0);
  if (!times.fused) return;                     // without oneDNN each is an op of its own
  EXPECT_NEAR(rounds[1] / rounds[0], 1, 0.02);  // the first has a transpose besides
  EXPECT_NEAR(rounds[2] / rounds[0], 1, 0.02);
  EXPECT_NEAR(rounds[3] / rounds[0], 0.5, 0.02);
  ExpectContains(times.ToString(), "An op that several layers were fused into counts for each");
}

// Values that a loop computes belong to the loop, although ops before it set the variables that it
// changes. No op has a place, as in models of Paddle.
TEST(TimeModel, LoopsHaveTheirBodies) {
  const BuiltModel model = ParseModelText(R"(
data { name: "x" shape: [-1, 128] }
layer { scale { input: "x" scale: 1 output: "h" } }
layer { fill_constant { shape: [1] dtype: INT64 value: 0 output: "i" } }
layer { fill_constant { shape: [1] dtype: INT64 value: 400 output: "n" } }
layer { less_than { x: "i" y: "n" output: "more" } }
layer { while { condition: "more"
  layer { fc { input: "h" size: 128 act: "relu" output: "next" } }
  layer { assign_to { x: "next" var: "h" } }
  layer { increment_by { var: "i" } }
  layer { less_than { x: "i" y: "n" output: "again" } }
  layer { assign_to { x: "again" var: "more" } } } }
layer { scale { input: "h" scale: 2 output: "out" } })");
  Scope scope;
  Executor().Run(model.startup, scope);
  ProgramDesc plain = model.main;
  plain.ForEachOp([](OpDesc& op) { op.RemoveAttr(kOpCallstackAttr); });
  TempDir dir;
  SaveInferenceModel(dir / "m", {"x"}, {"out"}, plain, scope);
  TimeOptions options;
  options.iterations = 5;
  options.batch_size = 16;
  const ModelTimes times = TimeSavedModel(dir / "m.pdmodel", options);
  double loop = 0, rest = 0;
  for (const LayerTime& layer : times.layers) {
    const double seconds = Percentile(layer.seconds[0], 50);
    (layer.ops == "while" ? loop : rest) += seconds;
    if (layer.ops == "while") {
      EXPECT_EQ(layer.run_by, "");
    }
  }
  EXPECT_GT(loop, rest) << times.ToString();  // 400 turns: without the body, far less
  EXPECT_FALSE(times.fused);
}

TEST(TimeModel, OneLayerSharesNothing) {
  TimeOptions options;
  options.iterations = 1;
  const ModelTimes times =
      TimeModel(ParseModelText(
                    "data { name: \"x\" shape: [-1, 3] } layer { fc { input: \"x\" size: 2 output: "
                    "\"y\" } } layer { mean { input: \"y\" output: \"loss\" } }"),
                options);
  EXPECT_FALSE(times.shared);
  EXPECT_EQ(times.ToString().find("An op"), std::string::npos);
}

// The largest and the smallest numbers there are have places too.
TEST(Plot, NumbersOfAnySizeAreDrawn) {
  constexpr double kMost = std::numeric_limits<double>::max();
  const std::vector<std::vector<std::pair<int64_t, double>>> curves = {
      {{0, 1.7e308}},
      {{0, kMost}, {1, -kMost}},
      {{0, 5e-324}},
      {{0, 5e-324}, {1, kMost}},
      {{0, 1.0}, {1, std::nextafter(1.0, 2)}},
      {{INT64_MAX - 1, 1.0}, {INT64_MAX, 2.0}}};
  for (const bool log_scale : {false, true}) {
    for (const auto& points : curves) {
      const std::string svg = PlotSvg({{"one", {{"train/loss", points}}}}, log_scale);
      for (const char* bad : {"\"nan", "\"-nan", "\"inf", "\"-inf", "Mnan", "M-nan", ",nan",
                              ",-nan", "Lnan", ",inf", ",-inf", "Linf"})
        EXPECT_EQ(svg.find(bad), std::string::npos) << bad << " in " << svg;
    }
  }
  for (const auto& [low, high] : {std::pair{0.0, 0.0}, {-kMost, kMost}, {1e308, kMost}})
    EXPECT_GE(RoundTicks(low, high, 6).size(), 2u);
}
}  // namespace coracle::plot_test
