#include <coracle/capi/border.h>
#include <coracle/capi/model.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

namespace coracle::capi {
namespace {

void CheckCount(int32_t given, size_t wanted, const char* what) {
  if (given < 0 || static_cast<size_t>(given) != wanted)
    ThrowInvalid(fmt::format("the model has {} {}, got {}", wanted, what, given));
}

std::vector<std::string> NamesOf(const char* what, const std::vector<Port>& ports) {
  std::vector<std::string> names;
  for (const Port& port : ports) names.push_back(fmt::format("{} {}", what, Quote(port.name)));
  return names;
}

void Run(coracle_session& session, const coracle_tensor* inputs, coracle_tensor* outputs) {
  const InUse running(session.running,
                      "the session runs in another thread; make one session for each thread");
  session.cancelled = false;
  for (size_t i = 0; i < session.output_names.size(); ++i)
    CheckOutput(outputs[i], session.output_names[i]);
  session.feeds.resize(session.input_names.size());
  for (size_t i = 0; i < session.feeds.size(); ++i) {
    session.feeds[i].lod().clear();
    ViewOf(inputs[i], session.input_names[i], &session.feeds[i]);
  }
  const ScopedRun limited(session.limits);
  const std::vector<Tensor>& results = session.program.Run(session.scope, session.feeds);
  session.results.Fill(results, {session.feeds, session.state.Of(session.scope)},
                       session.output_names, outputs);
}

}  // namespace
}  // namespace coracle::capi

using namespace coracle::capi;  // NOLINT(google-build-using-namespace): the functions are in C

coracle_session::coracle_session(std::shared_ptr<const Model> of)
    : model(std::move(of)),
      input_names(NamesOf("input", model->inputs)),
      output_names(NamesOf("output", model->outputs)),
      program(*model->program),
      scope(model->state.Clone()) {
  coracle::ResourceOptions options;
  options.stop = [this] { return cancelled.load(std::memory_order_relaxed); };
  limits = std::make_shared<coracle::ResourceLimits>(options, nullptr);
}

extern "C" {

int32_t coracle_session_new(const coracle_model* model, coracle_session** session) {
  return Guard([&] {
    RequireArgument(session, "session");
    *session = nullptr;
    RequireArgument(model, "model");
    *session = new coracle_session(model->model);
  });
}

void coracle_session_free(coracle_session* session) { delete session; }

int32_t coracle_session_run(coracle_session* session, const coracle_tensor* inputs,
                            int32_t input_count, coracle_tensor* outputs, int32_t output_count) {
  return Guard([&] {
    RequireArgument(session, "session");
    CheckCount(input_count, session->model->inputs.size(), "inputs");
    CheckCount(output_count, session->model->outputs.size(), "outputs");
    if (input_count > 0) RequireArgument(inputs, "inputs");
    if (output_count > 0) RequireArgument(outputs, "outputs");
    Run(*session, inputs, outputs);
  });
}

void coracle_session_cancel(coracle_session* session) {
  if (session) session->cancelled = true;
}

}  // extern "C"
