#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/graphviz.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

extern char** environ;

namespace coracle::tools {
namespace {

[[noreturn]] void ThrowErrno(const char* what, int error) {
  throw Error(ErrorCode::kIo, fmt::format("{}: {}", what, std::strerror(error)));
}

std::string HowItEnded(int status) {
  if (WIFEXITED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  return fmt::format(
      "it ended by signal {}, as it does for graphs that are too large for it; draw less with "
      "--stage, --block or --around",
      WTERMSIG(status));
}

std::string FirstLine(const std::string& text) {
  return PrintableLine(text.substr(0, text.find('\n')));
}

// A pipe. The destructor closes its ends; child programs do not inherit them.
struct Pipe {
  std::array<int, 2> ends = {-1, -1};

  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) ThrowErrno("cannot make a pipe", errno);
  }
  ~Pipe() {
    Close(0);
    Close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void Close(size_t end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
};

// A process `dot -Tsvg`. The destructor kills it and waits for it.
class DotProcess {
 public:
  DotProcess() {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in_.ends[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out_.ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_.ends[1], STDERR_FILENO);
    std::string name = "dot", format = "-Tsvg";
    std::array<char*, 3> words = {name.data(), format.data(), nullptr};
    const int error = ::posix_spawnp(&pid_, "dot", &actions, nullptr, words.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return;
    pid_ = -1;
    if (error != ENOENT) ThrowErrno("cannot run dot", error);
    throw Error(ErrorCode::kUnimplemented,
                "Graphviz's dot, which draws svg, is not installed (Debian: apt install graphviz); "
                "--format=dot writes the text that it takes");
  }
  ~DotProcess() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    Wait();
  }
  DotProcess(const DotProcess&) = delete;
  DotProcess& operator=(const DotProcess&) = delete;

  // Writes `text` to its input and reads its outputs until it closes them.
  void Talk(const std::string& text, double seconds) {
    const auto start = std::chrono::steady_clock::now();
    in_.Close(0), out_.Close(1), err_.Close(1);
    ::fcntl(in_.ends[1], F_SETFL, O_NONBLOCK);
    size_t written = 0;
    while (out_.ends[0] >= 0 || err_.ends[0] >= 0) {
      if (written == text.size()) in_.Close(1);
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      if (seconds > 0 && passed.count() > seconds) {
        throw Error(ErrorCode::kDeadlineExceeded,
                    fmt::format("dot took longer than {} s (--time_limit); draw less with "
                                "--stage, --block or --around",
                                seconds));
      }
      // poll skips descriptors that are -1.
      std::array<pollfd, 3> fds = {
          pollfd{in_.ends[1], POLLOUT, 0}, {out_.ends[0], POLLIN, 0}, {err_.ends[0], POLLIN, 0}};
      if (::poll(fds.data(), fds.size(), 100) < 0 && errno != EINTR)
        ThrowErrno("cannot wait for dot", errno);
      if (fds[0].revents != 0) Write(text, &written);
      if (fds[1].revents != 0) Read(out_, &svg_);
      if (fds[2].revents != 0) Read(err_, &messages_);
    }
  }

  // REQUIRES: Talk has returned.
  std::string Result() {
    const int status = Wait();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !svg_.empty()) return std::move(svg_);
    throw Error(ErrorCode::kIo,
                "dot failed: " + (messages_.empty() ? HowItEnded(status) : FirstLine(messages_)));
  }

 private:
  int Wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
    pid_ = -1;
    return status;
  }

  // If dot has closed its input, its messages give the reason.
  void Write(const std::string& text, size_t* written) {
    const ssize_t n = ::write(in_.ends[1], text.data() + *written, text.size() - *written);
    if (n >= 0)
      *written += static_cast<size_t>(n);
    else if (errno != EAGAIN && errno != EINTR)
      in_.Close(1);
  }

  static void Read(Pipe& pipe, std::string* text) {
    std::array<char, 65536> buffer;
    const ssize_t n = ::read(pipe.ends[0], buffer.data(), buffer.size());
    if (n > 0)
      text->append(buffer.data(), static_cast<size_t>(n));
    else if (n == 0 || errno != EINTR)
      pipe.Close(0);
  }

  Pipe in_, out_, err_;
  pid_t pid_ = -1;
  std::string svg_, messages_;
};

}  // namespace

std::string SvgOfDot(const std::string& dot, double seconds) {
  DotProcess process;
  process.Talk(dot, seconds);
  return process.Result();
}

}  // namespace coracle::tools
