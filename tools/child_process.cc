#include <coracle/framework/base/error.h>
#include <coracle/tools/child_process.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

namespace coracle::tools {
namespace {

constexpr int kCannotStart = 127;

// Only calls what is allowed between fork and exec in a process with threads.
[[noreturn]] void BecomeChild(char* const* words, int in, int out, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kCannotStart);  // it ended before prctl
  const bool connected = ::dup2(in, STDIN_FILENO) >= 0 && ::dup2(out, STDOUT_FILENO) >= 0 &&
                         ::dup2(out, STDERR_FILENO) >= 0;
  if (connected) ::execv("/proc/self/exe", words);
  ::_exit(kCannotStart);
}

[[noreturn]] void FailStart(const std::string& what) {
  throw Error(ErrorCode::kIo, fmt::format("{}: {}", what, std::strerror(errno)));
}

int OpenOrFail(const char* path, int flags) {
  const int file = ::open(path, flags | O_CLOEXEC, 0644);
  if (file < 0) FailStart(fmt::format("cannot open '{}'", path));
  return file;
}

pid_t Start(const ChildCommand& command) {
  std::vector<std::string> words = {"coracle"};
  words.insert(words.end(), command.words.begin(), command.words.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const int out = OpenOrFail(command.output.c_str(), O_WRONLY | O_CREAT | O_APPEND);
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) BecomeChild(pointers.data(), in, out, parent);
  ::close(in);
  ::close(out);
  if (child < 0) FailStart("cannot start a process");
  return child;
}

int CodeOf(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

void RunChildren(const std::vector<ChildCommand>& commands, int jobs,
                 const std::function<bool(size_t index, int code)>& ended) {
  std::map<pid_t, size_t> running;
  bool more = true;
  for (size_t next = 0; (more && next < commands.size()) || !running.empty();) {
    if (more && next < commands.size() && running.size() < static_cast<size_t>(jobs)) {
      running[Start(commands[next])] = next;
      ++next;
      continue;
    }
    int status = 0;
    const pid_t child = ::waitpid(-1, &status, 0);
    if (child < 0 && errno == EINTR) continue;
    if (child < 0) FailStart("cannot wait for a process");
    const auto found = running.find(child);
    if (found == running.end()) continue;
    const size_t index = found->second;
    running.erase(found);
    more = ended(index, CodeOf(status)) && more;
  }
}

}  // namespace coracle::tools
