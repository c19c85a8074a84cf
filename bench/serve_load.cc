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
#include <arpa/inet.h>
#include <coracle/bench/timing.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>

namespace coracle {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

struct Answer {
  int status = 0;
  std::string body;
};

// A connection that is kept, and opened again after the server closed it.
class Connection {
 public:
  explicit Connection(const std::string& address) {
    const size_t colon = address.rfind(':');
    address_.sin_family = AF_INET;
    int64_t port = 0;
    if (colon == std::string::npos || !ParseInt64(address.substr(colon + 1), &port) ||
        inet_pton(AF_INET, address.substr(0, colon).c_str(), &address_.sin_addr) != 1)
      ThrowInvalid("the address must be like 127.0.0.1:8000, got " + Quote(address));
    address_.sin_port = htons(static_cast<uint16_t>(port));
  }
  ~Connection() { Close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Throws kIo if the server does not answer.
  Answer Ask(const std::string& request) {
    Open();
    for (size_t sent = 0; sent < request.size();) {
      const ssize_t count =
          ::send(socket_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) Fail("sending failed");
      sent += static_cast<size_t>(count);
    }
    return Receive();
  }

 private:
  [[noreturn]] void Fail(const char* what) {
    Close();
    throw Error(ErrorCode::kIo, what);
  }
  void Open() {
    if (socket_ >= 0) return;
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0)
      Fail("connecting failed");
    received_.clear();
  }
  void Close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void ReceiveMore() {
    char buffer[65536];
    const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
    if (count <= 0) Fail("the server closed the connection");
    received_.append(buffer, static_cast<size_t>(count));
  }
  std::string Take(size_t count) {
    while (received_.size() < count) ReceiveMore();
    std::string taken = received_.substr(0, count);
    received_.erase(0, count);
    return taken;
  }
  std::string TakeLine() {
    size_t end = 0;
    while ((end = received_.find("\r\n")) == std::string::npos) ReceiveMore();
    const std::string line = Take(end + 2);
    return line.substr(0, end);
  }
  Answer Receive() {
    Answer answer;
    const std::vector<std::string> words = Split(TakeLine(), ' ');
    int64_t status = 0, length = -1;
    if (words.size() < 2 || !ParseInt64(words[1], &status)) Fail("the answer is not HTTP");
    answer.status = static_cast<int>(status);
    bool close = false, chunked = false;
    for (std::string line = TakeLine(); !line.empty(); line = TakeLine()) {
      const size_t colon = std::min(line.find(':'), line.size());
      const std::string name = Lower(line.substr(0, colon));
      const std::string value(Trim(line.substr(std::min(colon + 1, line.size()))));
      if (name == "content-length") ParseInt64(value, &length);
      close |= name == "connection" && Lower(value) == "close";
      chunked |= name == "transfer-encoding" && Lower(value) == "chunked";
    }
    if (chunked)
      answer.body = TakeChunks();
    else if (length > 0)
      answer.body = Take(static_cast<size_t>(length));
    if (close) Close();
    return answer;
  }
  std::string TakeChunks() {
    std::string body;
    for (;;) {
      const size_t size = std::strtoull(TakeLine().c_str(), nullptr, 16);
      if (size > 0) body += Take(size);
      TakeLine();
      if (size == 0) return body;
    }
  }

  sockaddr_in address_ = {};
  int socket_ = -1;
  std::string received_;
};

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

void Send(const Load& load, Connection& connection, Clock::time_point begin, Tally* tally) {
  try {
    const Answer answer = connection.Ask(load.request);
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
    Connection connection(load.address);
    while (Clock::now() < end) Send(load, connection, Clock::now(), tally);
  };
  const auto open_loop = [&] {
    Connection connection(load.address);
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
    Connection connection(address);
    const Answer metrics =
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
