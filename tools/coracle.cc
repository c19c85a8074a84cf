#include "command_line.h"

int main(int argc, char** argv) {
  coracle::tools::SetUp(argv[0]);
  return coracle::tools::RunCommandLine({argv + 1, argv + argc});
}
