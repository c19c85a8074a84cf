// What commands write to standard output.

#include <coracle/framework/base/broken_pipe.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/command.h>
#include <coracle/tools/print.h>
#include <coracle/train/log/format.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace coracle::tools {
namespace {

// Throws after an error of stdio. If the reader has closed the pipe, the command continues, because
// its files and its exit code still matter.
void CheckPrinted(bool printed) {
  if (printed || errno == EPIPE) return;
  throw Error(ErrorCode::kIo,
              fmt::format("cannot write standard output: {}", std::strerror(errno)));
}

void Write(std::string_view text) {
  errno = 0;
  CheckPrinted(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

}  // namespace

bool IsOfGoneReader(const Error& error) {
  pollfd out = {STDOUT_FILENO, 0, 0};
  return dynamic_cast<const BrokenPipe*>(&error) && ::poll(&out, 1, 0) == 1 &&
         (out.revents & POLLERR) != 0;
}

void Flush() {
  errno = 0;
  CheckPrinted(std::fflush(stdout) == 0);
}

std::string Shown(const std::string& name) { return QuoteIfNeeded(name); }

std::string ShownNames(const std::vector<std::string>& names, size_t most) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) shown.push_back(Shown(names[i]));
  const size_t more = names.size() - shown.size();
  return Join(shown, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string Counted(size_t n, const std::string& what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

size_t BriefWidth() { return ::isatty(STDOUT_FILENO) ? 72 : std::string::npos; }

void Print(std::string_view text) { Write(Printable(text)); }

void PrintData(std::string_view text) {
  if (::isatty(STDOUT_FILENO)) return Print(text);
  Write(text);
}

void WriteOutput(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& e) {
    if (!IsOfGoneReader(e)) throw;
  }
}

}  // namespace coracle::tools
