// Sends inference requests to a server over HTTP, and prints a JSON line with the throughput, the
// latency and the server's memory. It works with every server of the Open Inference Protocol v2
// (REST) that takes binary tensors, and with plain JSON routes.
//   serve_load --address=127.0.0.1:8000 --path=/v2/models/NAME/infer --input=NAME:FP32:1x3x224x224
//   [--connections=8] [--rate=0] [--seconds=5] [--warm=1] [--json] [--body=FILE] [--pid=PID]
// --input: a tensor of each request, drawn from [0, 1); several are separated by commas. --json
// sends their elements as JSON. --body sends a file instead (application/json). --rate=0: each
// connection sends its next request after the answer (closed loop). --rate=N: N requests a second
// begin at fixed times, whatever the answers do, and latency counts from these times (open loop).
// --pid: the process whose memory is printed; else the server's /metrics says it, if it can.
#include <coracle/bench/server_connection.h>
#include <coracle/bench/timing.h>
#include <coracle/framework/base/file.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>

namespace coracle {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// --- requests ---

struct Input {
  std::string name, datatype;
  std::vector<int64_t> shape;
  std::vector<float> values;  // FP32
};

std::vector<Input> InputsOf(const std::string& text) {
  std::vector<Input> inputs;
  uint64_t random = 1;
  for (const std::string& word : Split(text, ',')) {
    const std::vector<std::string> parts = Split(word, ':');
    if (parts.size() != 3 || parts[1] != "FP32")
      ThrowInvalid("an input must be like x:FP32:1x28x28, got " + Quote(word));
    Input input{parts[0], parts[1], {}, {}};
    int64_t count = 1;
    for (const std::string& dim : Split(parts[2], 'x')) {
      input.shape.push_back(std::stoll(dim));
      count *= input.shape.back();
    }
    for (int64_t i = 0; i < count; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      input.values.push_back(static_cast<float>(random >> 40) * 0x1p-24f);
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

// The JSON text, and the bytes after it.
std::pair<std::string, std::string> BodyOf(const std::vector<Input>& inputs, bool as_json) {
  std::string text = R"({"inputs":[)", bytes;
  for (const Input& input : inputs) {
    text += fmt::format(R"({}{{"name":"{}","datatype":"{}","shape":[{}],)",
                        &input == &inputs[0] ? "" : ",", input.name, input.datatype,
                        fmt::join(input.shape, ","));
    const size_t size = input.values.size() * sizeof(float);
    if (as_json) {
      text += fmt::format(R"("data":[{}]}})", fmt::join(input.values, ","));
    } else {
      text += fmt::format(R"("parameters":{{"binary_data_size":{}}}}})", size);
      bytes.append(reinterpret_cast<const char*>(input.values.data()), size);
    }
  }
  text += as_json ? "]}" : R"(],"parameters":{"binary_data_output":true}})";
  return {text, bytes};
}

std::string RequestOf(const Arguments& arguments) {
  const std::string file = arguments.Text("body", "");
  const bool as_json = arguments.Text("json", "") == "true" || !file.empty();
  std::string text, bytes;
  if (file.empty())
    std::tie(text, bytes) = BodyOf(InputsOf(arguments.Text("input", "x:FP32:1x1")), as_json);
  else
    text = ReadFile(file);
  std::string head = fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n",
                                 arguments.Text("path", "/"), arguments.Text("address", ""),
                                 text.size() + bytes.size());
  head += as_json ? "Content-Type: application/json\r\n"
                  : fmt::format(
                        "Content-Type: application/octet-stream\r\n"
                        "Inference-Header-Content-Length: {}\r\n",
                        text.size());
  return head + "\r\n" + text + bytes;
}

// --- load ---

// The times of good answers, and how many were not good.
struct Tally {
  std::mutex mutex;
  std::vector<double> seconds;
  uint64_t bad = 0;
  std::string first_bad;

  void Add(double time) {
    const std::lock_guard<std::mutex> lock(mutex);
    seconds.push_back(time);
  }
  void AddBad(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (bad++ == 0) first_bad = text.substr(0, 200);
  }
};

struct Load {
  std::string address, request;
  int64_t connections = 8;
  double rate = 0;
};

void Send(const Load& load, ServerConnection& connection, Clock::time_point begin, Tally* tally) {
  try {
    const ServerAnswer answer = connection.Ask(load.request);
    if (answer.status == 200)
      tally->Add(Seconds(Clock::now() - begin));
    else
      tally->AddBad(fmt::format("{}: {}", answer.status, answer.body));
  } catch (const Error& error) {
    tally->AddBad(error.message());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Returns the seconds until the last answer.
double Run(const Load& load, double seconds, Tally* tally) {
  const Clock::time_point begin = Clock::now();
  const auto end =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::atomic<int64_t> next{0};
  const auto closed_loop = [&] {
    ServerConnection connection(load.address);
    while (Clock::now() < end) Send(load, connection, Clock::now(), tally);
  };
  const auto open_loop = [&] {
    ServerConnection connection(load.address);
    for (;;) {
      const auto at =
          begin + std::chrono::duration_cast<Clock::duration>(
                      std::chrono::duration<double>(static_cast<double>(next++) / load.rate));
      if (at >= end) return;
      std::this_thread::sleep_until(at);
      Send(load, connection, at, tally);
    }
  };
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < load.connections; ++i) {
    if (load.rate > 0)
      threads.emplace_back(open_loop);
    else
      threads.emplace_back(closed_loop);
  }
  for (std::thread& thread : threads) thread.join();
  return Seconds(Clock::now() - begin);
}

double Milliseconds(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  const auto last = static_cast<double>(sorted.size() - 1);
  return 1000 * sorted[static_cast<size_t>(part * last + 0.5)];
}

// The resident size of the server in bytes; 0 if neither --pid nor its metrics tell it.
double ResidentBytes(const Arguments& arguments) {
  const std::string pid = arguments.Text("pid", ""), address = arguments.Text("address", "");
  if (!pid.empty()) {
    double all = 0, resident = 0;
    std::ifstream("/proc/" + pid + "/statm") >> all >> resident;
    return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
  }
  try {
    ServerConnection connection(address);
    const ServerAnswer metrics =
        connection.Ask(fmt::format("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", address));
    const std::string name = "\nprocess_resident_memory_bytes ";
    const size_t at = metrics.body.find(name);
    return at == std::string::npos ? 0 : std::strtod(&metrics.body[at + name.size()], nullptr);
  } catch (const Error&) {
    return 0;
  }
}

int Main(const Arguments& arguments) {
  Load load;
  load.address = arguments.Text("address", "127.0.0.1:8000");
  load.request = RequestOf(arguments);
  load.connections = arguments.Whole("connections", 8);
  load.rate = arguments.Real("rate", 0);
  Tally warm, tally;
  Run(load, arguments.Real("warm", 1), &warm);
  const double seconds = Run(load, arguments.Real("seconds", 5), &tally);
  std::sort(tally.seconds.begin(), tally.seconds.end());
  fmt::print(R"({{"connections": {}, "rate": {}, "good": {}, "bad": {}, "per_second": {:.1f}, )"
             R"("p50_ms": {:.3f}, "p99_ms": {:.3f}, "max_ms": {:.3f}, "resident_mb": {:.1f}}})"
             "\n",
             load.connections, load.rate, tally.seconds.size(), tally.bad,
             static_cast<double>(tally.seconds.size()) / seconds, Milliseconds(tally.seconds, 0.5),
             Milliseconds(tally.seconds, 0.99), Milliseconds(tally.seconds, 1),
             ResidentBytes(arguments) / 1048576);
  if (tally.bad > 0)
    std::fprintf(stderr, "serve_load: %lu answers were not good, the first one: %s\n",
                 static_cast<unsigned long>(tally.bad), tally.first_bad.c_str());
  return tally.bad > 0 ? 1 : 0;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return coracle::RunMain(argc, argv, coracle::Main); }
