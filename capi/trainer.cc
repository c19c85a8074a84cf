#include <coracle/capi/border.h>
#include <coracle/capi/options.h>
#include <coracle/capi/tensors.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>

#include <atomic>
#include <map>
#include <utility>

struct coracle_trainer {
  coracle_trainer(const coracle::CompileOptions& options, coracle::ProgramDesc of)
      : executor(options), program(std::move(of)) {}

  coracle::Executor executor;
  coracle::ProgramDesc program;
  coracle::Scope scope;
  // Compiled for the names of feeds and fetches.
  std::map<std::pair<std::vector<std::string>, std::vector<std::string>>, coracle::PreparedProgram>
      prepared;
  coracle::capi::StateTensors state;
  coracle::capi::Results results;
  std::atomic<bool> used{false};
};

namespace coracle::capi {
namespace {

constexpr const char* kOneThread =
    "the trainer is used in another thread; one may use it at a time";

std::vector<std::string> NamesOf(const char* const* names, int32_t count, const char* what) {
  if (count < 0) ThrowInvalid(fmt::format("the number of {} is {}", what, count));
  if (count > 0) RequireArgument(names, what);
  std::vector<std::string> copies;
  for (int32_t i = 0; i < count; ++i) {
    RequireArgument(names[i], what);
    copies.emplace_back(names[i]);
  }
  return copies;
}

coracle_trainer* Open(const char* program, const char* startup, const char* parameters,
                      const coracle_options& options) {
  if (!options.input_shapes.empty())
    ThrowInvalid(
        "a trainer takes no option shape:NAME; its feeds have the shapes of their tensors");
  auto trainer = std::make_unique<coracle_trainer>(options.compile, ReadProgram(program));
  if (startup) trainer->executor.Run(ReadProgram(startup), trainer->scope);
  if (parameters) LoadParameters(trainer->program, parameters, trainer->scope);
  return trainer.release();
}

PreparedProgram& PreparedFor(coracle_trainer& trainer, const std::vector<std::string>& feeds,
                             const std::vector<std::string>& fetches) {
  const auto key = std::make_pair(feeds, fetches);
  const auto found = trainer.prepared.find(key);
  if (found != trainer.prepared.end()) return found->second;
  return trainer.prepared.emplace(key, trainer.executor.Prepare(trainer.program, feeds, fetches))
      .first->second;
}

void Step(coracle_trainer& trainer, const std::vector<std::string>& feed_names,
          const coracle_tensor* feeds, const std::vector<std::string>& fetch_names,
          coracle_tensor* fetches) {
  std::vector<std::string> outputs;
  for (const std::string& name : fetch_names) outputs.push_back("fetch " + Quote(name));
  for (size_t i = 0; i < outputs.size(); ++i) CheckOutput(fetches[i], outputs[i]);
  std::vector<Tensor> views(feed_names.size());
  for (size_t i = 0; i < views.size(); ++i)
    ViewOf(feeds[i], "feed " + Quote(feed_names[i]), &views[i]);
  PreparedProgram& prepared = PreparedFor(trainer, feed_names, fetch_names);
  const std::vector<Tensor>& results = prepared.Run(trainer.scope, views);
  trainer.results.Fill(results, {views, trainer.state.Of(trainer.scope)}, outputs, fetches);
}

}  // namespace
}  // namespace coracle::capi

using namespace coracle::capi;  // NOLINT(google-build-using-namespace): the functions are in C

extern "C" {

int32_t coracle_trainer_new(const char* program, const char* startup, const char* parameters,
                            const coracle_options* options, coracle_trainer** trainer) {
  return Guard([&] {
    RequireArgument(trainer, "trainer");
    *trainer = nullptr;
    RequireArgument(program, "program");
    coracle_options chosen;
    chosen.compile.shape_warnings = false;
    if (options) chosen = *options;
    *trainer = Open(program, startup, parameters, chosen);
  });
}

void coracle_trainer_free(coracle_trainer* trainer) { delete trainer; }

int32_t coracle_trainer_step(coracle_trainer* trainer, const char* const* feed_names,
                             const coracle_tensor* feeds, int32_t feed_count,
                             const char* const* fetch_names, coracle_tensor* fetches,
                             int32_t fetch_count) {
  return Guard([&] {
    RequireArgument(trainer, "trainer");
    const auto fed = NamesOf(feed_names, feed_count, "feed_names");
    const auto fetched = NamesOf(fetch_names, fetch_count, "fetch_names");
    if (feed_count > 0) RequireArgument(feeds, "feeds");
    if (fetch_count > 0) RequireArgument(fetches, "fetches");
    const InUse used(trainer->used, kOneThread);
    Step(*trainer, fed, feeds, fetched, fetches);
  });
}

int32_t coracle_trainer_save(coracle_trainer* trainer, const char* path) {
  return Guard([&] {
    RequireArgument(trainer, "trainer");
    RequireArgument(path, "path");
    const InUse used(trainer->used, kOneThread);
    coracle::SaveParameters(trainer->scope, coracle::PersistableNames(trainer->program), path);
  });
}

int32_t coracle_trainer_save_model(coracle_trainer* trainer, const char* path,
                                   const char* const* inputs, int32_t input_count,
                                   const char* const* outputs, int32_t output_count) {
  return Guard([&] {
    RequireArgument(trainer, "trainer");
    RequireArgument(path, "path");
    const InUse used(trainer->used, kOneThread);
    coracle::SaveInferenceModel(path, NamesOf(inputs, input_count, "inputs"),
                                NamesOf(outputs, output_count, "outputs"), trainer->program,
                                trainer->scope);
  });
}

}  // extern "C"
