#include <coracle/convert/models.h>
#include <coracle/framework/base/text.h>
#include <coracle/serve/http_server.h>
#include <coracle/serve/server.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <fmt/format.h>
#include <pthread.h>

#include <csignal>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

namespace coracle::tools {
namespace {

namespace fs = std::filesystem;

struct ServeFlags {
  std::string address = "127.0.0.1";
  int32_t port = 8000;
  int32_t workers = 1;
  int64_t max_batch = 32;
  double max_delay_ms = 2;
  int64_t max_queue = 256;
  int64_t max_body_mb = 64;
  int32_t connections = 256;
  double watch = 0;
  double grace = 0;
  bool access_log = false;
  CompileFlags compile = {};
};

Fields<ServeFlags> ServeFields() {
  using F = ServeFlags;
  return Fields<F>("")
      .Add("address", &F::address,
           "`ADDRESS` to listen on; 0.0.0.0 lets other machines in, without any authentication")
      .Add("port", &F::port, "port `N` to listen on; 0: any that is free, which is printed",
           ClosedRange(0, 65535))
      .Add("workers", &F::workers, "runs of one model at the same time", ClosedRange(1, 1024))
      .Add("max_batch", &F::max_batch,
           "most rows that requests are joined to for one run, and most rows of a request; 1: "
           "requests are not joined",
           ClosedRange(1, 1 << 20))
      .Add("max_delay_ms", &F::max_delay_ms,
           "milliseconds that the oldest request waits for others to join it; 0: only requests "
           "that wait for a worker are joined",
           ClosedRange(0, 10'000))
      .Add("max_queue", &F::max_queue,
           "most requests that wait for a model; more are answered with status 503",
           ClosedRange(1, 1 << 20))
      .Add("max_body_mb", &F::max_body_mb, "most `MB` (megabytes) of a request, uncompressed",
           ClosedRange(1, 1 << 20))
      .Add("connections", &F::connections,
           "connections that are served at the same time; more wait", ClosedRange(1, 1 << 16))
      .Add("watch", &F::watch,
           "looks every `SECONDS` for models that are new, changed or gone; 0: only when asked",
           ClosedRange(0, 86'400))
      .Add("grace", &F::grace,
           "`SECONDS` to go on serving after SIGTERM, while /v2/health/ready says no",
           ClosedRange(0, 86'400))
      .Add("access_log", &F::access_log, "write a line of JSON to standard output for each request")
      .Inline(&F::compile, CompileFields());
}

serve::ServeOptions ServeOptionsOf(const ServeFlags& flags) {
  serve::ServeOptions options;
  options.workers = flags.workers;
  options.max_batch = flags.max_batch;
  options.max_delay = flags.max_delay_ms / 1000;
  options.max_queue = static_cast<size_t>(flags.max_queue);
  options.compile = CompileOptionsOf(flags.compile);
  options.time_limit = options.compile.time_limit;
  options.compile.time_limit = 0;  // counts from the arrival of the request
  return options;
}

bool IsRepository(const std::string& path) {
  return fs::is_directory(path) && !fs::exists(path + "/__model__") &&
         !fs::exists(path + "/inference.pdmodel") && !fs::exists(path + "/inference.json");
}

// PATH, NAME=PATH, or a directory of models.
void Add(const std::string& word, serve::Repository& models) {
  const size_t equals = word.find('=');
  if (equals != std::string::npos)
    return models.AddModel(word.substr(0, equals), word.substr(equals + 1));
  if (IsRepository(word)) return models.AddDirectory(word);
  models.AddModel(fs::path(word).stem().string(), word);
}

void RequireReady(const serve::Repository& models) {
  for (const serve::ModelState& state : models.Index()) {
    if (!state.ready)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the model {} cannot be served: {}", state.name, state.reason));
  }
}

void LogAccess(const serve::HttpServer::Access& access) {
  static std::mutex mutex;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const nlohmann::json line = {{"time", std::chrono::duration<double>(now).count()},
                               {"remote", access.remote},
                               {"method", access.method},
                               {"path", access.path},
                               {"status", access.status},
                               {"request_bytes", access.request_bytes},
                               {"response_bytes", access.response_bytes},
                               {"seconds", access.seconds}};
  const std::lock_guard<std::mutex> lock(mutex);
  Print(fmt::format("{}\n", line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  std::fflush(stdout);
}

// Waits for SIGTERM or SIGINT, which all threads block, then ends the server.
class StopOnSignal {
 public:
  StopOnSignal() {
    sigemptyset(&signals_);
    for (int signal : {SIGTERM, SIGINT, SIGUSR2}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~StopOnSignal() {
    if (thread_.joinable()) {
      pthread_kill(thread_.native_handle(), SIGUSR2);  // ends the wait
      thread_.join();
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  void Start(serve::Server& server, serve::HttpServer& http, double grace) {
    thread_ = std::thread([this, &server, &http, grace] {
      int signal = 0;
      sigwait(&signals_, &signal);
      server.StopBeingReady();
      if (signal != SIGUSR2 && grace > 0)
        std::this_thread::sleep_for(std::chrono::duration<double>(grace));
      http.Stop();
    });
  }

 private:
  sigset_t signals_, before_;
  std::thread thread_;
};

int Serve(const Args& args, const ServeFlags& flags) {
  RequireArgs(args, 1, SIZE_MAX, "the models to serve, or directories of models");
  RegisterOnnxReader();
  RegisterPirReader();
  StopOnSignal stop;  // before other threads begin, which inherit its mask
  const auto metrics = std::make_shared<serve::MetricsTable>();
  serve::Repository models(ServeOptionsOf(flags), metrics);
  for (const std::string& word : args) Add(word, models);
  models.Refresh();
  RequireReady(models);
  serve::Server server(models, metrics);
  serve::HttpOptions options;
  options.address = flags.address;
  options.port = flags.port;
  options.connections = flags.connections;
  options.max_body = static_cast<uint64_t>(flags.max_body_mb) << 20;
  serve::HttpServer http(
      options, [&](const serve::Request& request) { return server.Handle(request); },
      flags.access_log ? LogAccess : serve::HttpServer::AccessLog());
  http.Bind();
  for (const serve::ModelState& state : models.Index())
    Print(fmt::format("model {}, version {}\n", state.name, state.version));
  Print(fmt::format("serving on http://{}:{}\n", flags.address, http.port()));
  std::fflush(stdout);
  if (flags.watch > 0) models.Watch(flags.watch);
  stop.Start(server, http, flags.grace);
  http.Run();
  models.Stop();
  return 0;
}

}  // namespace

Command ServeCommand() {
  return MakeCommand({"serve", "serve models over HTTP (Open Inference Protocol v2)",
                      "serve MODEL|NAME=MODEL|DIRECTORY... [--port=8000] [--max_batch=32]",
                      "coracle serve digits.pdmodel detector=det.onnx --port=8000\n"
                      "curl localhost:8000/v2/models/digits"},
                     ServeFields(), Serve);
}

}  // namespace coracle::tools
