#include <coracle/framework/base/temporaries.h>
#include <coracle/tools/signals.h>

#include <csignal>

namespace coracle::tools {
namespace {

// Ends the process with the default action of the signal, after removing temporary files.
void EndBySignal(int signal) {
  RemoveNotedTemporaries();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void HandleSignal(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  if (action.sa_handler != SIG_DFL) return;
  action.sa_handler = EndBySignal;
  sigfillset(&action.sa_mask);  // another signal would end the process before the files are removed
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void HandleSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of its write
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) HandleSignal(signal);
}

}  // namespace coracle::tools
