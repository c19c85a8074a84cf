#include <coracle/communication/communicator.h>
#include <coracle/tools/command_line.h>
#include <unistd.h>

#include <cstdio>

int main(int argc, char** argv) {
  coracle::tools::SetUp(argv[0]);
  const int code = coracle::tools::RunCommandLine({argv + 1, argv + argc});
  // A thread of a failed rank may be blocked in MPI forever. _exit skips the exit handlers, which
  // would destroy objects that the thread uses.
  if (code != 0 && coracle::FindLaunched().size > 1) {
    std::fflush(nullptr);
    ::_exit(code);
  }
  return code;
}
