#include <coracle/convert/models.h>
#include <coracle/framework/base/append_file.h>
#include <coracle/framework/base/text.h>
#include <coracle/serve/end_signals.h>
#include <coracle/serve/http_server.h>
#include <coracle/serve/server.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/raw_rows.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

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
  int64_t max_memory_mb = 0;
  std::optional<int64_t> decode_mb = {};
  int32_t connections = 256;
  double watch = 0;
  double grace = 0;
  double drain = 30;
  bool access_log = false;
  bool repository_api = true;
  std::string trace;
  bool trace_all = false;
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
      .Add(
          "max_memory_mb", &F::max_memory_mb,
          "most `MB` (megabytes) of all requests that are there at the same time, with the tensors "
          "that are made of them; more are answered with status 503, and one that alone takes more "
          "with 413; 0: 16 times --max_body_mb",
          ClosedRange(0, int64_t{1} << 30))
      .Add("decode_mb", &F::decode_mb, kDecodeDoc, LimitedRange(1, 1 << 24))
      .Add("connections", &F::connections,
           "connections at the same time; an idle one is closed when another client waits, and "
           "more wait",
           ClosedRange(1, 1 << 16))
      .Add("watch", &F::watch,
           "looks every `SECONDS` for models that are new, changed or gone; 0: only when asked",
           ClosedRange(0, 86'400))
      .Add("grace", &F::grace,
           "`SECONDS` to go on serving after SIGTERM, while /v2/health/ready says no",
           ClosedRange(0, 86'400))
      .Add("drain", &F::drain,
           "most `SECONDS` that requests may take after SIGTERM and --grace; then the server ends "
           "without them, with exit code 1",
           ClosedRange(0.1, 86'400))
      .Add("access_log", &F::access_log, "write a line of JSON to standard output for each request")
      .Add("repository_api", &F::repository_api,
           "let clients load and unload models (POST /v2/repository/models/NAME/load)")
      .Add("trace", &F::trace,
           "append a line of JSON to `FILE` with the times of each request that has the header "
           "\"X-Trace: 1\"")
      .Add("trace_all", &F::trace_all, "with --trace: of every request")
      .Inline(&F::compile, CompileFields());
}

serve::ServeOptions ServeOptionsOf(const ServeFlags& flags) {
  serve::ServeOptions options;
  options.workers = flags.workers;
  options.max_batch = flags.max_batch;
  options.max_delay = flags.max_delay_ms / 1000;
  options.max_queue = static_cast<size_t>(flags.max_queue);
  options.decode_mb = flags.decode_mb;
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

// Writes the lines of --access_log and --trace.
class RequestLog {
 public:
  explicit RequestLog(const ServeFlags& flags) : log_(flags.access_log), all_(flags.trace_all) {
    if (!flags.trace.empty()) trace_ = std::make_unique<AppendFile>(flags.trace, true);
  }

  void Add(const serve::HttpServer::Access& access) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool trace = trace_ && (all_ || access.trace);
    if (trace) AddTrace(access);
    if (!log_) return;
    nlohmann::json line = Fields(access);
    line["remote"] = access.remote;
    line["request_bytes"] = access.request_bytes;
    line["response_bytes"] = access.response_bytes;
    line["sent"] = access.sent;
    Print(Text(line));
    std::fflush(stdout);
  }

 private:
  void AddTrace(const serve::HttpServer::Access& access) {
    nlohmann::json line = Fields(access);
    line["receive_seconds"] = access.receive_seconds;
    line["queue_seconds"] = access.queue_seconds;
    line["run_seconds"] = access.run_seconds;
    line["send_seconds"] = access.send_seconds;
    try {
      trace_->Append(Text(line));
    } catch (const Error& error) {  // a full disk must not end the server
      LogMessage(MessageLevel::kWarning, fmt::format("{}; --trace ends", error.message()));
      trace_.reset();
    }
  }
  static nlohmann::json Fields(const serve::HttpServer::Access& access) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    nlohmann::json line = {{"time", std::chrono::duration<double>(now).count()},
                           {"method", access.method},
                           {"path", access.path},
                           {"status", access.status},
                           {"seconds", access.seconds}};
    if (!access.id.empty()) line["id"] = access.id;
    return line;
  }
  static std::string Text(const nlohmann::json& line) {
    return line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  }

  const bool log_, all_;
  std::mutex mutex_;
  std::unique_ptr<AppendFile> trace_;
};

serve::HttpOptions HttpOptionsOf(const ServeFlags& flags,
                                 std::shared_ptr<serve::MemoryBudget> memory) {
  serve::HttpOptions options;
  options.address = flags.address;
  options.port = flags.port;
  options.connections = flags.connections;
  options.max_body = static_cast<uint64_t>(flags.max_body_mb) << 20;
  options.time_limit = CompileOptionsOf(flags.compile).time_limit;
  options.memory = std::move(memory);
  return options;
}

std::shared_ptr<serve::MemoryBudget> MemoryOf(const ServeFlags& flags) {
  const int64_t mb = flags.max_memory_mb > 0 ? flags.max_memory_mb : 16 * flags.max_body_mb;
  return std::make_shared<serve::MemoryBudget>(static_cast<uint64_t>(mb) << 20);
}

// Freed memory goes back to the system. By default, glibc keeps up to 64 MB of it for each of many
// threads, as soon as one large block has been freed.
void ReturnFreedMemory() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 8 << 20);
#endif
}

// Each connection is an open file, of which a process may have 1024 by default.
void AllowOpenFiles(int32_t connections) {
  constexpr rlim_t kOthers = 256;
  rlimit limit = {};
  const rlim_t wanted = static_cast<rlim_t>(connections) + kOthers;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int Serve(const Args& args, const ServeFlags& flags) {
  RequireArgs(args, 1, SIZE_MAX, "the models to serve, or directories of models");
  if (flags.trace_all && flags.trace.empty()) ThrowInvalid("--trace_all needs --trace=FILE");
  RegisterOnnxReader();
  RegisterPirReader();
  serve::EndSignals signals;  // before other threads begin
  std::signal(SIGPIPE, SIG_IGN);
  AllowOpenFiles(flags.connections);
  ReturnFreedMemory();
  RequestLog log(flags);
  const auto metrics = std::make_shared<serve::MetricsTable>();
  serve::Repository models(ServeOptionsOf(flags), metrics);
  for (const std::string& word : args) Add(word, models);
  models.Refresh();
  RequireReady(models);
  const auto memory = MemoryOf(flags);
  serve::Server server(models, metrics, {.repository_api = flags.repository_api, .memory = memory});
  serve::HttpServer http(
      HttpOptionsOf(flags, memory),
      [&](serve::Request request) { return server.Handle(std::move(request)); },
      [&](const serve::HttpServer::Access& access) {
        metrics->CountAnswer(access.status);
        log.Add(access);
      });
  http.Bind();
  const auto stop = [&] {
    models.StopLoading();
    http.Stop();
  };
  signals.Serve([&] { server.StopBeingReady(); }, flags.grace, stop, flags.drain);
  for (const serve::ModelState& state : models.Index())
    Print(fmt::format("model {}, version {}\n", state.name, state.version));
  const bool has_colons = flags.address.find(':') != std::string::npos;  // IPv6
  const std::string host = has_colons ? "[" + flags.address + "]" : flags.address;
  Print(fmt::format("serving on http://{}:{}\n", host, http.port()));
  std::fflush(stdout);
  if (flags.watch > 0) models.Watch(flags.watch);
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
