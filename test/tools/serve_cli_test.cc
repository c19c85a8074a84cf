// `coracle serve` as a process: its lines, its logs and its flags.

#include <arpa/inet.h>
#include <coracle/coracle.h>
#include <coracle/test/sanitizers.h>
#include <coracle/test/serve/http_client.h>
#include <coracle/test/serve/small_models.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace coracle::serve_cli_test {

using nlohmann::json;

class ServeCli : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/serve_cli.XXXXXX";
    directory_ = mkdtemp(name);
    ProgramDesc main, startup;
    Builder net(main, startup);
    net.Data("x", {-1, 2});
    net.Append("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
    SaveInferenceModel(directory_ + "/relu", {"x"}, {"y"}, main, Scope());
  }
  void TearDown() override {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    std::filesystem::remove_all(directory_);
  }

  // Runs `coracle serve` with these words; its standard output is a pipe.
  void Begin(const std::vector<std::string>& words) {
    int pipes[2];
    ASSERT_EQ(::pipe(pipes), 0);
    std::vector<std::string> all = {CORACLE_CLI, "serve", "--port=0"};
    all.insert(all.end(), words.begin(), words.end());
    child_ = ::fork();
    if (child_ == 0) {
      std::vector<char*> args;
      for (std::string& word : all) args.push_back(word.data());
      args.push_back(nullptr);
      ::dup2(pipes[1], STDOUT_FILENO);
      ::close(pipes[0]);
      ::close(pipes[1]);
      ::execv(CORACLE_CLI, args.data());
      ::_exit(126);
    }
    ::close(pipes[1]);
    out_ = pipes[0];
  }
  std::string Line() const {
    std::string line;
    char c = 0;
    while (::read(out_, &c, 1) == 1 && c != '\n') line += c;
    return line;
  }
  // What the server at the port of the line "serving on http://ADDRESS:PORT" answers.
  static std::string Ask(const std::string& serving, const std::string& request) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port =
        htons(static_cast<uint16_t>(std::stoi(serving.substr(serving.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::send(socket, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t count; (count = ::recv(socket, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<size_t>(count));
    ::close(socket);
    return answer;
  }
  static std::string Infer(const std::string& headers) {
    const std::string body =
        R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[-1,2]}]})";
    return "POST /v2/models/relu/infer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  static std::string Posted(const std::string& path, const std::string& body,
                            const std::string& headers = "") {
    return "POST " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  // The most memory that the server has used, in MB.
  double PeakMb() const {
    std::ifstream status("/proc/" + std::to_string(child_) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024;
    return 0;
  }
  int Status() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return status;
  }

  std::string directory_;
  pid_t child_ = -1;
  int out_ = -1;
};

TEST_F(ServeCli, AnswersAndLogs) {
  const std::string trace = directory_ + "/trace.jsonl";
  Begin(
      {directory_ + "/relu.pdmodel", "--access_log", "--trace=" + trace, "--repository_api=false"});
  EXPECT_EQ(Line(), "model relu, version 1");
  const std::string serving = Line();
  ASSERT_EQ(serving.substr(0, 27), "serving on http://127.0.0.1");
  EXPECT_NE(Ask(serving, Infer("X-Trace: 1\r\nX-Request-Id: a7\r\n")).find("\"data\":[0,2]"),
            std::string::npos);
  EXPECT_NE(Ask(serving, Infer("")).find(" 200 "), std::string::npos);
  EXPECT_NE(Ask(serving, "nonsense\r\n").find(" 400 "), std::string::npos);
  EXPECT_NE(Ask(serving,
                "POST /v2/repository/models/relu/unload HTTP/1.1\r\nHost: a\r\n"
                "Connection: close\r\n\r\n")
                .find(" 403 "),
            std::string::npos);
  const json first = json::parse(Line());
  EXPECT_EQ(first["id"], "a7");
  EXPECT_EQ(first["path"], "/v2/models/relu/infer");
  EXPECT_EQ(first["status"], 200);
  EXPECT_EQ(first["sent"], true);
  Line();
  EXPECT_EQ(json::parse(Line())["status"], 400);
  const std::string metrics =
      Ask(serving, "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_NE(metrics.find("coracle_http_answers_total{status=\"403\"} 1\n"), metrics.npos);
  ::kill(child_, SIGTERM);
  EXPECT_EQ(Status(), 0);
  std::ifstream lines(trace);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const json stages = json::parse(line);
  EXPECT_EQ(stages["id"], "a7");
  for (const char* stage : {"receive_seconds", "queue_seconds", "run_seconds", "send_seconds"})
    EXPECT_GE(stages[stage], 0) << stage;
  EXPECT_GT(stages["run_seconds"], 0);
  EXPECT_FALSE(std::getline(lines, line));  // the other requests have no X-Trace
}

// The budget holds for the memory of the process, not only for the bytes of bodies.
TEST_F(ServeCli, BombsStayBelowTheBudget) {
  if (UnderSanitizer()) GTEST_SKIP() << "a sanitizer keeps freed memory";
  Begin({directory_ + "/relu.pdmodel", "--max_body_mb=16", "--max_memory_mb=64"});
  Line();
  const std::string serving = Line();
  EXPECT_NE(Ask(serving, Infer("")).find(" 200 "), std::string::npos);
  const double before = PeakMb();
  const std::string bomb = Posted("/v2/models/relu/infer", Gzip(std::string(9 << 20, ' ')),
                                  "Content-Encoding: gzip\r\n");
  std::vector<std::thread> clients;
  for (int i = 0; i < 40; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < 5; ++k) {
        const std::string answer = Ask(serving, bomb);
        const std::string status = answer.substr(0, 13);  // 413: unpacked, it takes 117 MB
        EXPECT_TRUE(status == "HTTP/1.1 503 " || status == "HTTP/1.1 413 ") << answer;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_LT(PeakMb() - before, 64 + 24);
  EXPECT_NE(Ask(serving, Infer("")).find(" 200 "), std::string::npos);
}

// The first run of the model "loop" does not end by itself.
TEST_F(ServeCli, LoadingDoesNotHoldUpTheEnd) {
  const std::string models = directory_ + "/models";
  std::filesystem::create_directories(models);
  SaveScale(models + "/scale", 2);
  Begin({models});
  Line();
  const std::string serving = Line();
  SaveLoop(models + "/loop", -1);
  std::thread load([&] { Ask(serving, Posted("/v2/repository/models/loop/load", "")); });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto begin = std::chrono::steady_clock::now();
  ::kill(child_, SIGTERM);
  EXPECT_EQ(Status(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  load.join();
}

TEST_F(ServeCli, TheDrainEnds) {
  SaveLoop(directory_ + "/loop", 0);
  Begin({directory_ + "/loop.pdmodel", "--drain=0.5"});
  Line();
  const std::string serving = Line();
  std::thread run([&] {
    Ask(serving, Posted("/v2/models/loop/infer",
                        R"({"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]})"));
  });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto begin = std::chrono::steady_clock::now();
  ::kill(child_, SIGTERM);
  const int status = Status();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  run.join();
}

TEST_F(ServeCli, BadFlags) {
  for (const char* flag : {"--connections=0", "--connections=65537", "--trace_all",
                           "--max_memory_mb=-1", "--drain=-1", "--drain=0", "--decode_mb=0"}) {
    Begin({directory_ + "/relu.pdmodel", flag});
    const int status = Status();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) < 126)
        << flag << status;
  }
}

}  // namespace coracle::serve_cli_test
