// Serves mixed traffic with `coracle serve` for a long time: good requests, whose answers are
// compared with direct runs, bad requests, clients that are killed or slow, models that are
// replaced, loaded and unloaded meanwhile. Prints a JSON line for each interval, with latency and
// the server's memory.
//   serve_soak --coracle=PATH [--minutes=60] [--interval=60] [--connections=8] [--time_limit=0]
// The server gets --time_limit. Exit code 1: an answer was wrong, an answer had an unexpected
// status, fewer than half of the good requests got their answer (the others 503), the server ended,
// or its memory grew: the mean of the last quarter of the intervals is more than 20% and 32 MB
// above the second quarter's, if there are 12 intervals or more.
#include <coracle/bench/server_connection.h>
#include <coracle/bench/timing.h>
#include <coracle/coracle.h>
#include <coracle/framework/base/file.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <zlib.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

namespace coracle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kWidth = 64, kClasses = 10;
constexpr size_t kCases = 64;
// The least share of good requests that must be answered.
constexpr double kLeastAnswered = 0.5;
// On a busy machine, a short soak goes on until this number of good requests has ended.
constexpr uint64_t kLeastRequests = 100;
constexpr double kMostLonger = 10;  // times the length that is asked for

// y = relu(x w) v, with parameters that `seed` decides.
void SaveNetwork(const std::string& prefix, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.2f);
  ProgramDesc main, startup;
  Builder net(main, startup);
  Scope scope;
  const auto parameter = [&](const char* name, const Shape& shape) {
    VarDesc& var = main.Root().Var(name);
    var.SetDType(DType::kFloat32);
    var.SetShape(shape);
    var.SetPersistable(true);
    Tensor values(DType::kFloat32, shape);
    for (float& value : values.span<float>()) value = normal(random);
    scope.Set(name, values);
    return net.Var(name);
  };
  const Variable hidden = net.Relu(
      net.Binary("matmul_v2", net.Data("x", {-1, kWidth}), parameter("w", {kWidth, kWidth})));
  const Variable y = net.Binary("matmul_v2", hidden, parameter("v", {kWidth, kClasses}));
  SaveInferenceModel(prefix, {"x"}, {y.name()}, main, scope);
}

// A request, and what each state of the model answers to it.
struct Case {
  std::string as_json, as_bytes;  // whole HTTP requests
  std::vector<std::vector<float>> answers;
};

std::string Post(const std::string& path, const std::string& body, const std::string& headers) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: soak\r\nContent-Length: {}\r\n{}\r\n{}", path,
                     body.size(), headers, body);
}

std::vector<float> RunDirectly(const std::string& prefix, const Tensor& x) {
  Scope scope;
  const InferenceModel model = LoadInferenceModel(prefix + ".pdmodel", scope);
  PreparedProgram program = Executor().Prepare(model.program, model.feed_names, model.fetch_names);
  const std::span<const float> values = program.Run(scope, {x})[0].span<float>();
  return {values.begin(), values.end()};
}

std::vector<Case> MakeCases(const std::vector<std::string>& states) {
  std::vector<Case> cases(kCases);
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (size_t i = 0; i < kCases; ++i) {
    const int64_t rows = 1 + static_cast<int64_t>(i % 8);
    Tensor x(DType::kFloat32, {rows, kWidth});
    for (float& value : x.span<float>()) value = uniform(random);
    const std::string path = "/v2/models/network/infer";
    const std::string head =
        fmt::format(R"({{"inputs":[{{"name":"x","datatype":"FP32","shape":[{},{}],)", rows, kWidth);
    const auto values = std::as_const(x).span<float>();
    cases[i].as_json =
        Post(path, fmt::format("{}\"data\":[{}]}}]}}", head, fmt::join(values, ",")), "");
    const std::string text = fmt::format(R"({}"parameters":{{"binary_data_size":{}}}}}],)"
                                         R"("parameters":{{"binary_data_output":true}}}})",
                                         head, x.nbytes());
    cases[i].as_bytes =
        Post(path, text + std::string(static_cast<const char*>(std::as_const(x).raw()), x.nbytes()),
             fmt::format("Inference-Header-Content-Length: {}\r\n", text.size()));
    for (const std::string& prefix : states) cases[i].answers.push_back(RunDirectly(prefix, x));
  }
  return cases;
}

std::vector<float> ValuesOf(const ServerAnswer& answer) {
  const bool binary = answer.json_bytes >= 0;
  const std::string text =
      binary ? answer.body.substr(0, static_cast<size_t>(answer.json_bytes)) : answer.body;
  const json output = json::parse(text)["outputs"][0];
  if (!binary) return output["data"].get<std::vector<float>>();
  std::vector<float> values((answer.body.size() - text.size()) / sizeof(float));
  std::memcpy(values.data(), answer.body.data() + text.size(), values.size() * sizeof(float));
  return values;
}

bool IsNear(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= 1e-4f * (1 + std::abs(b[i])))) return false;
  return true;
}

// `coracle serve` as a child process.
class ServerProcess {
 public:
  // Its messages go to the file `log`.
  ServerProcess(const std::string& coracle, const std::string& directory, const std::string& log,
                double time_limit) {
    const std::string limit = fmt::format("--time_limit={}", time_limit);
    int pipes[2];
    if (::pipe(pipes) != 0) throw Error(ErrorCode::kIo, "no pipe");
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(pipes[1], STDOUT_FILENO);
      const int messages = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      if (messages >= 0) ::dup2(messages, STDERR_FILENO);
      ::close(pipes[0]);
      ::close(pipes[1]);
      ::execl(coracle.c_str(), "coracle", "serve", directory.c_str(), "--port=0", "--workers=2",
              "--max_memory_mb=128", "--connections=64", limit.c_str(), nullptr);
      ::_exit(126);
    }
    ::close(pipes[1]);
    out_ = pipes[0];
    const std::string mark = "serving on http://";
    std::string text;
    char c = 0;
    while (::read(out_, &c, 1) == 1) {
      text += c;
      const size_t at = text.find(mark);
      if (c == '\n' && at != text.npos) {
        address_ = text.substr(at + mark.size(), text.size() - at - mark.size() - 1);
        return;
      }
    }
    throw Error(ErrorCode::kIo, "the server does not begin: " + text);
  }
  ~ServerProcess() {
    if (child_ > 0) ::kill(child_, SIGKILL);
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
    ::close(out_);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& address() const { return address_; }
  bool Runs() {
    if (child_ > 0 && ::waitpid(child_, nullptr, WNOHANG) != 0) child_ = -1;
    return child_ > 0;
  }
  double ResidentMb() const {
    double all = 0, resident = 0;
    std::ifstream(fmt::format("/proc/{}/statm", child_)) >> all >> resident;
    return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1048576;
  }
  // The exit code after SIGTERM.
  int End() {
    ::kill(child_, SIGTERM);
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t child_ = -1;
  int out_ = -1;
  std::string address_;
};

std::string GzipBomb() {
  const std::string plain(size_t{60} << 20, ' ');
  z_stream stream = {};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

struct BadRequest {
  std::string bytes;
  std::vector<int> statuses;  // that are right
};

std::vector<BadRequest> BadRequests() {
  const std::string infer = "/v2/models/network/infer";
  std::string deep = R"({"inputs":)" + std::string(10'000, '[');
  return {
      {Post(infer, "{", ""), {400}},
      {Post(infer, deep, ""), {400}},
      {Post(infer, R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]})",
            ""),
       {400}},
      {Post("/v2/models/none/infer", "{}", ""), {404}},
      {Post(infer, "{}", "Request-Timeout-Ms: x\r\n"), {400}},
      {Post(infer, GzipBomb(), "Content-Encoding: gzip\r\n"), {413, 503}},
      {Post(infer, "damaged", "Content-Encoding: gzip\r\n"), {400}},
      {fmt::format("POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", infer),
       {413}},
      {"GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n", {431}},
      {"\x16\x03\x01 not HTTP at all\r\n\r\n", {400}},
      {"GET /v2/models/network/infer HTTP/1.1\r\nHost: a\r\n\r\n", {405}},
  };
}

// Counts the answers that clients got since the last report.
class Counts {
 public:
  enum What { kBusy, kBad, kKilled, kSlow, kLoads, kKinds };

  void AddGood(double seconds) {
    const std::lock_guard<std::mutex> lock(mutex_);
    good_.push_back(seconds);
    ++answered_;
  }
  void Add(What what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++counts_[what];
    refused_ += what == kBusy;
  }
  // A defect of the server. Prints the first ones.
  void AddWrong(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (++wrong_ <= 20) std::fprintf(stderr, "serve_soak: %s\n", text.substr(0, 300).c_str());
  }
  uint64_t wrong() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return wrong_;
  }
  // Good requests that have ended, answered or refused.
  uint64_t ended() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return answered_ + refused_;
  }
  // Whether enough of the good requests got their answer since the start. If not, prints why.
  bool WereAnswered() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t all = answered_ + refused_;
    if (answered_ > 0 &&
        static_cast<double>(answered_) >= kLeastAnswered * static_cast<double>(all))
      return true;
    std::fprintf(stderr, "serve_soak: only %llu of %llu good requests were answered\n",
                 static_cast<unsigned long long>(answered_), static_cast<unsigned long long>(all));
    return false;
  }
  void Report(double minutes, double resident) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::sort(good_.begin(), good_.end());
    const auto ms = [&](double part) {
      if (good_.empty()) return 0.0;
      return 1000 * good_[static_cast<size_t>(part * static_cast<double>(good_.size() - 1))];
    };
    fmt::print(R"({{"minutes": {:.2f}, "good": {}, "busy": {}, "bad": {}, "killed": {}, )"
               R"("slow": {}, "loads": {}, "wrong": {}, "p50_ms": {:.3f}, "p99_ms": {:.3f}, )"
               R"("max_ms": {:.3f}, "resident_mb": {:.1f}}})"
               "\n",
               minutes, good_.size(), counts_[kBusy], counts_[kBad], counts_[kKilled],
               counts_[kSlow], counts_[kLoads], wrong_, ms(0.5), ms(0.99), ms(1), resident);
    std::fflush(stdout);
    good_.clear();
    std::fill(counts_, counts_ + kKinds, 0);
  }

 private:
  std::mutex mutex_;
  std::vector<double> good_;
  uint64_t counts_[kKinds] = {}, wrong_ = 0;
  uint64_t answered_ = 0, refused_ = 0;  // good requests since the start
};

class Soak {
 public:
  Soak(ServerProcess& server, std::string directory, std::vector<Case> cases)
      : server_(server), directory_(std::move(directory)), cases_(std::move(cases)) {}

  void Begin(int connections) {
    for (int i = 0; i < connections; ++i) {
      AddThread([this, i] { GoodClient(static_cast<unsigned>(i)); });
    }
    AddThread([this] { BadClient(); });
    AddThread([this] { KilledClient(); });
    AddThread([this] { SlowClient(); });
    AddThread([this] { Loader(); });
  }
  void End() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Counts& counts() { return counts_; }

 private:
  template <class F>
  void AddThread(F work) {
    threads_.emplace_back([this, work] {
      try {
        work();
      } catch (const std::exception& error) {
        counts_.AddWrong(error.what());
      }
    });
  }
  void Pause(double seconds) const {
    for (double end = Now() + seconds; !stop_ && Now() < end;)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  // Its connection may be closed while it is idle, and its request must then come again.
  ServerAnswer AskTwice(ServerConnection& connection, const std::string& request) {
    try {
      return connection.Ask(request);
    } catch (const Error&) {
      return connection.Ask(request);
    }
  }

  void GoodClient(unsigned seed) {
    std::mt19937 random(seed);
    ServerConnection connection(server_.address());
    while (!stop_) {
      const Case& wanted = cases_[random() % cases_.size()];
      const double begin = Now();
      const ServerAnswer answer =
          AskTwice(connection, random() % 2 ? wanted.as_json : wanted.as_bytes);
      if (answer.status == 503) {  // a full queue, or no memory while bombs are unpacked
        counts_.Add(Counts::kBusy);
        Pause(0.01);
        continue;
      }
      if (answer.status != 200) {
        counts_.AddWrong(fmt::format("a good request: {} {}", answer.status, answer.body));
        continue;
      }
      const std::vector<float> values = ValuesOf(answer);
      const bool right =
          std::any_of(wanted.answers.begin(), wanted.answers.end(),
                      [&](const std::vector<float>& each) { return IsNear(values, each); });
      if (!right) counts_.AddWrong("a wrong answer: " + answer.body);
      counts_.AddGood(Now() - begin);
      if (random() % 64 == 0) Pause(0.2);
    }
  }
  void BadClient() {
    const std::vector<BadRequest> requests = BadRequests();
    for (size_t i = 0; !stop_; ++i) {
      const BadRequest& bad = requests[i % requests.size()];
      try {
        ServerConnection connection(server_.address());
        const int status = connection.Ask(bad.bytes).status;
        if (std::find(bad.statuses.begin(), bad.statuses.end(), status) == bad.statuses.end())
          counts_.AddWrong(fmt::format("bad request {}: status {}", i % requests.size(), status));
        counts_.Add(Counts::kBad);
      } catch (const Error&) {
        // The server refuses while the client still sends, whose system then drops the answer.
      }
      Pause(0.02);
    }
  }
  // Leaves before the request is whole, or before its answer.
  void KilledClient() {
    std::mt19937 random(1);
    while (!stop_) {
      const std::string& request = cases_[random() % cases_.size()].as_json;
      const size_t bytes = random() % 2 ? request.size() : random() % request.size();
      try {
        ServerConnection connection(server_.address());
        connection.Send(request.substr(0, bytes));
        connection.Reset();
      } catch (const Error&) {  // the server has closed before
      }
      counts_.Add(Counts::kKilled);
      Pause(0.02);
    }
  }
  void SlowClient() {
    while (!stop_) {
      try {
        ServerConnection connection(server_.address());
        for (char c : cases_[0].as_json.substr(0, 400)) {
          connection.Send(std::string(1, c));
          Pause(0.05);
          if (stop_) break;
        }
      } catch (const Error&) {  // the head takes too long, so that the server closes
      }
      counts_.Add(Counts::kSlow);
    }
  }
  // Replaces the files of the model by its other state, and loads it; reloads a second model.
  void Loader() {
    ServerConnection connection(server_.address());
    const auto ask = [&](const std::string& path) {
      const ServerAnswer answer = AskTwice(connection, Post(path, "", ""));
      if (answer.status != 200)
        counts_.AddWrong(fmt::format("{}: {} {}", path, answer.status, answer.body));
      counts_.Add(Counts::kLoads);
    };
    for (int i = 1; !stop_; ++i) {
      const std::string link = directory_ + "/next";
      fs::create_directory_symlink(fmt::format("../states/{}", i % 2), link);
      fs::rename(link, directory_ + "/served/network");
      ask("/v2/repository/models/network/load");
      ask("/v2/repository/models/other/unload");
      ask("/v2/repository/models/other/load");
      Pause(0.5);
    }
  }

  ServerProcess& server_;
  const std::string directory_;
  const std::vector<Case> cases_;
  Counts counts_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = (fs::temp_directory_path() / "serve_soak.XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw Error(ErrorCode::kIo, "no temporary directory");
    path = pattern;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  std::string path;
};

double MeanOf(const std::vector<double>& values, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<double>(end - begin);
}

// The first quarter fills caches.
bool Grew(const std::vector<double>& resident) {
  const size_t quarter = resident.size() / 4;
  if (resident.size() < 12) return false;
  const double early = MeanOf(resident, quarter, 2 * quarter);
  const double late = MeanOf(resident, resident.size() - quarter, resident.size());
  if (late <= 1.2 * early + 32) return false;
  std::fprintf(stderr, "serve_soak: memory grew from %.1f to %.1f MB\n", early, late);
  return true;
}

int Main(const Arguments& arguments) {
  const std::string coracle = arguments.Text("coracle", "");
  if (coracle.empty()) ThrowInvalid("--coracle=PATH of the command is missing");
  std::signal(SIGPIPE, SIG_IGN);
  const ScratchDirectory scratch;
  std::vector<std::string> states;
  for (unsigned i = 0; i < 2; ++i) {
    const std::string directory = fmt::format("{}/states/{}", scratch.path, i);
    fs::create_directories(directory);
    states.push_back(directory + "/inference");
    SaveNetwork(states.back(), 100 + i);
  }
  fs::create_directories(scratch.path + "/served");
  fs::create_directory_symlink("../states/0", scratch.path + "/served/network");
  SaveNetwork(scratch.path + "/served/other", 5);
  std::vector<Case> cases = MakeCases(states);
  const std::string log = scratch.path + "/server.log";
  ServerProcess server(coracle, scratch.path + "/served", log, arguments.Real("time_limit", 0));
  Soak soak(server, scratch.path, std::move(cases));
  soak.Begin(arguments.Whole("connections", 8));
  const double begin = Now(), length = 60 * arguments.Real("minutes", 60);
  const auto goes_on = [&] {
    const double passed = Now() - begin;
    return passed < length ||
           (passed < kMostLonger * length && soak.counts().ended() < kLeastRequests);
  };
  const double interval = arguments.Real("interval", 60);
  std::vector<double> resident;
  for (double next = begin + interval; goes_on() && server.Runs(); next += interval) {
    while (Now() < next && goes_on()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    resident.push_back(server.ResidentMb());
    soak.counts().Report((Now() - begin) / 60, resident.back());
  }
  const bool runs = server.Runs();
  soak.End();
  const int code = runs ? server.End() : -1;
  if (code != 0)
    std::fprintf(stderr, "serve_soak: the server %s with code %d\n",
                 runs ? "ended after SIGTERM" : "ended by itself", code);
  const bool answered = soak.counts().WereAnswered();
  if (code == 0 && answered && soak.counts().wrong() == 0 && !Grew(resident)) return 0;
  const std::string messages = ReadFile(log);
  std::fprintf(stderr, "serve_soak: the server's last messages:\n%s",
               messages.substr(messages.size() - std::min(messages.size(), size_t{4000})).c_str());
  return 1;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return coracle::RunMain(argc, argv, coracle::Main); }
