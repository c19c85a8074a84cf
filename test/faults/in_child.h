#pragma once
// Work in a child process, so that a crash is one failure.

#include <coracle/framework/base/error.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace coracle::faults {

// Runs f in a child, and returns what it returns, or how the child ended.
inline std::string InChild(const std::function<std::string()>& f) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    ::alarm(120);
    SetLogSink([](MessageLevel, const std::string&) {});
    const std::string text = f();
    const bool written = ::write(ends[1], text.data(), text.size()) >= 0;
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  return status == 0 ? text : "ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace coracle::faults
