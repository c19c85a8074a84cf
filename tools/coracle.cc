#include <coracle/communication/launched.h>
#include <unistd.h>

#include <cstdio>

#include "command_line.h"

int main(int argc, char** argv) {
  coracle::tools::SetUp(argv[0]);
  const int code = coracle::tools::RunCommandLine({argv + 1, argv + argc});
  // A rank that has failed may have a thread that stands in MPI for ever: the libraries that it is
  // in must not be destroyed beside it.
  if (code != 0 && coracle::FindLaunched().size > 1) {
    std::fflush(nullptr);
    ::_exit(code);
  }
  return code;
}
