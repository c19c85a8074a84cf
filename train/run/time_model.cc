#include <coracle/edit/edit.h>
#include <coracle/executor/drawn_values.h>
#include <coracle/framework/base/latency.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/words.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/train/run/feeder.h>
#include <coracle/train/run/layer_map.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/time_model.h>
#include <coracle/train/run/timed_step.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <variant>

namespace coracle::inline internal {
namespace {

// The index of the first op of `block`, from `first` on, that the profile entry belongs to; the
// number of ops if there is none.
size_t FindIn(const BlockDesc& block, size_t first, const OpTime& time) {
  while (first < block.NumOps() &&
         (block.op(first).type() != time.op_type || !block.op(first).Writes(time.output)))
    ++first;
  return first;
}

// Finds the place of each profile entry. The entries of the root block come first, in order of
// execution (as in the program), followed by those of sub-blocks. Ops that the plan evaluated in
// advance are not in the profile, and copies added by a plan are not in the program.
std::vector<LayerMap::Place> PlacesOf(const PreparedProgram& step, const LayerMap& map) {
  const ProgramDesc& program = step.program();
  std::vector<LayerMap::Place> places;
  struct Owner {  // the op that runs a block
    LayerMap::Place place;
    bool of_model;
  };
  std::map<int, Owner> owners;
  size_t at = 0;
  for (const OpTime& time : step.Profile()) {
    int block = 0;
    size_t found = FindIn(program.Root(), at, time);
    if (found < program.Root().NumOps()) at = found + 1;
    while (found == program.Block(block).NumOps() && ++block < program.NumBlocks())
      found = FindIn(program.Block(block), 0, time);
    LayerMap::Place place;
    if (block < program.NumBlocks()) {
      const OpDesc& op = program.Block(block).op(found);
      place = map.Find(op);
      const auto owner = owners.find(block);
      const bool of_no_layer = place.shares[0].first == LayerMap::kOther;
      // An update in a block belongs to the layers whose parameters it updates.
      const bool of_owner = owner != owners.end() && owner->second.of_model &&
                            owner->second.place.part != StepPart::kUpdate;
      if (owner != owners.end() && (of_no_layer || of_owner)) place = owner->second.place;
      for (int inner : op.SubBlocks())
        owners.insert_or_assign(inner, Owner{place, map.RunsBlockOfModel(op)});
    } else if (!places.empty()) {
      place.part = places.back().part;
    }
    places.push_back(std::move(place));
  }
  return places;
}

std::string Columns(const LayerTime& layer) {
  std::string text;
  for (const std::vector<double>& seconds : layer.seconds) {
    for (double percent : {50, 90, 99}) {
      const bool any = std::any_of(seconds.begin(), seconds.end(), [](double s) { return s > 0; });
      text += any ? fmt::format(" {:>8.3f}", 1e3 * Percentile(seconds, percent))
                  : fmt::format(" {:>8}", "-");
    }
    text += " ";
  }
  return text;
}

// Adds the difference of two profiles to the layers of its ops.
void AddRun(const std::vector<OpTime>& before, const std::vector<OpTime>& after,
            const std::vector<LayerMap::Place>& places, size_t run, ModelTimes* times) {
  for (size_t i = 0; i < std::min(places.size(), after.size()); ++i) {
    const double seconds = after[i].seconds - before[i].seconds;
    const LayerMap::Place& place = places[i];
    const auto part = static_cast<size_t>(place.part);
    times->total.seconds[part][run] += seconds;
    const bool several = place.shares.size() > 1;
    times->shared |= several && place.part == StepPart::kUpdate;
    times->fused |= several && place.part != StepPart::kUpdate;
    for (const auto& [index, share] : place.shares) {
      const size_t layer = std::min(index, times->layers.size() - 1);
      times->layers[layer].seconds[part][run] += share * seconds;
    }
  }
}

// Whether the batch size can vary: in a job, or if an input has an unknown first dim.
bool HasBatch(const TimedStep& step) {
  return step.columns > 0 ||
         std::any_of(step.inputs.begin(), step.inputs.end(), [&](const std::string& name) {
           const Shape& shape = step.main.Root().FindVar(name)->shape();
           return shape.rank() > 0 && shape[0] < 0;
         });
}

ModelTimes EmptyTimes(const LayerMap& map, const TimedStep& step, int64_t iterations) {
  ModelTimes times;
  times.batch_size = HasBatch(step) ? step.batch_size : 0;  // 0: no batch size
  times.batches = step.batches;
  times.layers = map.layers();
  times.layers.push_back({"(other)", "", "", {}});
  times.total.layer = "total of ops";
  for (auto& seconds : times.total.seconds) seconds.resize(static_cast<size_t>(iterations));
  for (LayerTime& layer : times.layers) layer.seconds = times.total.seconds;
  return times;
}

Executor ExecutorFor(const TimeOptions& options, bool profile) {
  CompileOptions compile = options.compile;
  compile.profile = profile;
  return Executor(compile, options.ops ? *options.ops : DefaultOps());
}

// The program with the shapes of the run, as far as shape rules can derive them.
ProgramDesc WithShapes(const TimedStep& step, const std::vector<Tensor>& feeds,
                       const TimeOptions& options) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (size_t i = 0; i < feeds.size(); ++i) shapes.emplace_back(step.inputs[i], feeds[i].shape());
  ProgramDesc program = step.main;
  try {
    SetShapes(program, shapes, options.ops ? *options.ops : DefaultOps());
  } catch (const Error&) {  // only a run knows the shapes: fused layers get equal shares
    return step.main;
  }
  return program;
}

// Notes the op types that run a layer's forward ops, if they differ from the layer's own.
void NoteKernels(const PreparedProgram& step, const LayerMap& map, ModelTimes* times) {
  const auto note = [&](const OpDesc& op) {
    const LayerMap::Place place = map.Find(op);
    if (place.part != StepPart::kForward || place.shares.size() > 1) return;
    if (place.shares[0].first >= map.layers().size()) return;
    LayerTime& layer = times->layers[place.shares[0].first];
    if (HasWord(layer.ops, '+', op.type()) || HasWord(layer.run_by, '+', op.type())) return;
    layer.run_by += (layer.run_by.empty() ? "" : "+") + op.type();
  };
  const ProgramDesc& program = step.program();
  program.Root().ForEachOp([&](const OpDesc& op) {
    note(op);
    if (map.RunsBlockOfModel(op)) return;
    for (const BlockDesc* block : program.BlocksRunBy(op)) block->ForEachOp(note);
  });
}

ModelTimes TimeRuns(const TimedStep& step, const TimeOptions& options, PreparedProgram& program,
                    Scope& scope) {
  const std::vector<Tensor> feeds = DrawFeeds(step);
  for (int64_t i = 0; i < options.warm_up * step.batches; ++i) program.Run(scope, feeds);

  const LayerMap map(WithShapes(step, feeds, options));
  ModelTimes times = EmptyTimes(map, step, options.iterations);
  const std::vector<LayerMap::Place> places = PlacesOf(program, map);
  NoteKernels(program, map, &times);
  std::vector<OpTime> before = program.Profile();
  for (size_t run = 0; run < static_cast<size_t>(options.iterations); ++run) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < step.batches; ++i) program.Run(scope, feeds);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    times.steps.push_back(passed.count());
    std::vector<OpTime> after = program.Profile();
    AddRun(before, after, places, run, &times);
    before = std::move(after);
  }
  return times;
}

// The batch size is the first dim of the first input whose declared first dim is unknown.
void SetFeedShapes(const NamedShapes& shapes, TimedStep* step) {
  step->shapes.insert(shapes.begin(), shapes.end());
  for (const auto& [name, shape] : shapes) {
    const VarDesc& var = *step->main.Root().FindVar(name);
    if (var.lod_level() > 0 || shape.rank() == 0) continue;
    if (var.shape().rank() == 0 || var.shape()[0] >= 0) continue;
    step->batch_size = shape[0];
    break;
  }
}

// Suggests "x:1x3xNxN" for float32[-1, 3, -1, -1], for a batch of 1.
std::string ShapeHint(const std::string& name, const Shape& shape) {
  std::vector<std::string> dims;
  for (int i = 0; i < shape.rank(); ++i)
    dims.push_back(shape[i] < 0 ? "N" : fmt::format("{}", shape[i]));
  return name + ":" + Join(dims, "x");
}

void RequireKnown(const BlockDesc& root, const NamedShapes& shapes) {
  std::vector<std::string> unknown, hints;
  for (const auto& [name, shape] : shapes) {
    if (shape.IsKnown()) continue;
    unknown.push_back(Quote(name) + " " + root.FindVar(name)->meta().ToString());
    hints.push_back(ShapeHint(name, shape));
  }
  if (unknown.empty()) return;
  ThrowInvalid(fmt::format("not all dims are known of the feed{} {}; give them with --shape={}",
                           unknown.size() == 1 ? "" : "s", Join(unknown, ", "), Join(hints, ",")));
}

ModelTimes TimeSteps(const TimedStep& step, const TimeOptions& options) {
  Scope scope;
  ExecutorFor(options, false).Run(step.startup, scope);
  PreparedProgram program =
      ExecutorFor(options, true).Prepare(step.main, step.inputs, step.fetches);
  return TimeRuns(step, options, program, scope);
}

}  // namespace

ModelTimes TimeModel(const BuiltModel& model, const TimeOptions& options) {
  TimedStep step{model.main, model.startup, model.inputs, {}, options.batch_size};
  SetFeedShapes(options.shapes, &step);
  if (step.inputs.empty()) step.inputs = FindInputs(step.main);
  BlockDesc& root = step.main.Root();
  if (root.FindVar(options.loss)) {
    Momentum({.learning_rate = 0}).Minimize(Variable::Of(root, options.loss), step.startup);
    step.fetches = {options.loss};
  } else if (root.NumOps() > 0) {
    step.fetches = {root.op(root.NumOps() - 1).FirstOutput()};
  }
  return TimeSteps(step, options);
}

NamedShapes FeedShapes(const ProgramDesc& program, const std::vector<std::string>& names,
                       int64_t batch_size, const NamedShapes& given) {
  const BlockDesc& root = program.Root();
  NamedShapes shapes;
  for (const std::string& name : names)
    shapes.emplace_back(name, DrawnShape(*root.FindVar(name), batch_size));
  for (const auto& [name, shape] : given) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      throw Error(
          ErrorCode::kNotFound,
          fmt::format("--shape: the program is not fed {}; it is fed {}{}", Quote(name),
                      names.empty() ? "nothing" : Join(names, ", "), DidYouMean(name, names)));
    }
    shapes[static_cast<size_t>(found - names.begin())].second = shape;
  }
  RequireKnown(root, shapes);
  return shapes;
}

std::vector<Tensor> DrawFeeds(const TimedStep& step) {
  std::vector<Tensor> feeds;
  for (size_t input = 0; input < step.inputs.size(); ++input) {
    const std::string& name = step.inputs[input];
    const int64_t length = input < step.columns ? step.length : 0;
    const auto given = step.shapes.find(name);
    Shape shape = given == step.shapes.end()
                      ? DrawnShape(*step.main.Root().FindVar(name), step.batch_size)
                      : given->second;
    for (int i = 0; i < shape.rank(); ++i)
      if (shape[i] < 0) shape[i] = length > 0 ? length : step.batch_size;
    feeds.push_back(DrawFeed(step.main, name, shape, step.batch_size));
  }
  return feeds;
}

TimedStep StepOfJob(const JobConfig& job, const OpRegistry* ops) {
  TrainOptions train;
  train.ops = ops;
  Programs programs = BuildPrograms(job, train);
  TimedStep step;
  step.columns = programs.train.columns.size();
  step.inputs = programs.train.Feeds(job);
  step.main = std::move(programs.train.program);
  step.startup = std::move(programs.startup);
  step.fetches = {job.loss};
  step.batch_size = job.batch_size;
  step.batches = job.training.iter_size;
  if (const auto* text = std::get_if<TextOptions>(&job.train.source))
    step.length = text->sequence_length;
  return step;
}

ModelTimes TimeJob(const JobConfig& job, const TimeOptions& options) {
  return TimeSteps(StepOfJob(job, options.ops), options);
}

ModelTimes TimeSavedModel(const std::string& path, const TimeOptions& options) {
  Scope scope;
  InferenceModel model = LoadInferenceModel(path, scope);
  TimedStep step{
      std::move(model.program), {}, model.feed_names, model.fetch_names, options.batch_size};
  SetFeedShapes(options.shapes, &step);
  const Executor executor = ExecutorFor(options, true);
  step.main.Root().RemoveOpsIf([&](const OpDesc& op) {  // they belong to no layer
    const OpSpec* def = executor.ops().Find(op.type());
    return def && def->kind != OpKind::kCompute;
  });
  PreparedProgram program = executor.PrepareOwning(step.main, scope, step.inputs, step.fetches);
  return TimeRuns(step, options, program, scope);
}

std::string ModelTimes::ToString() const {
  size_t width = 12;
  for (const LayerTime& layer : layers)
    width = std::max(width, std::min<size_t>(layer.layer.size(), 40));
  std::string text =
      batches > 1
          ? fmt::format("{} batches of {} a step, {} steps", batches, batch_size, steps.size())
      : batch_size > 0 ? fmt::format("batch of {}, {} runs", batch_size, steps.size())
                       : fmt::format("{} runs", steps.size());
  text += fmt::format(", milliseconds\n{:<{}} {:^28}{:^28}{:^28}\n", "", width, "forward",
                      "backward", "update");
  text += fmt::format("{:<{}}", "layer", width);
  for (int part = 0; part < 3; ++part)
    text += fmt::format(" {:>8} {:>8} {:>8} ", "p50", "p90", "p99");
  text += "\n";
  for (const LayerTime& layer : layers) {
    bool any = false;
    for (const auto& seconds : layer.seconds)
      any = any || std::any_of(seconds.begin(), seconds.end(), [](double s) { return s > 0; });
    if (!any) continue;
    const std::string run_by = layer.run_by.empty() ? "" : " [" + layer.run_by + "]";
    text += fmt::format("{:<{}.{}}{} {}{}\n", PrintableLine(layer.layer), width, width,
                        Columns(layer), PrintableLine(layer.ops), run_by);
  }
  text += fmt::format("{:<{}}{}\n", total.layer, width, Columns(total));
  text += fmt::format("{:<{}} {:>8.3f} {:>8.3f} {:>8.3f}\n", "whole step", width,
                      1e3 * Percentile(steps, 50), 1e3 * Percentile(steps, 90),
                      1e3 * Percentile(steps, 99));
  if (shared) {
    text +=
        "An op that updates the parameters of several layers counts for each by its parameters' "
        "elements.\n";
  }
  if (fused)
    text += "An op that several layers were fused into counts for each by its arithmetic.\n";
  return text;
}

}  // namespace coracle::inline internal
