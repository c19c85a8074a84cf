#pragma once
// Hostile programs that are run, as `coracle run` would do it, under small limits.

#include <coracle/test/fuzz/program_check.h>
#include <coracle/test/fuzz/random_program.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

struct HostileCase {
  ProgramDesc program;
  std::map<std::string, VarValue> values;  // of what is fed, and of persistable variables
  std::vector<std::string> fetches;
  bool reference = false;  // kernels
};

// A program of any ops, spoiled in up to four places, most of them attrs far outside of what is
// sensible; its inputs hold numbers that no index, shape or count should have.
HostileCase MakeHostileCase(Choices& choose, const std::vector<std::string>& types = {});

struct HostileCounts {
  uint64_t programs = 0, refused = 0, stopped = 0, ran = 0;
  double slowest = 0;                      // seconds
  std::map<std::string, uint64_t> errors;  // first lines without their numbers and names

  void Add(const HostileCounts& other);
};

// Writes and reads the program, verifies it and runs it with a memory limit of 16 MiB and a time
// limit of 1 s. A finding is an InternalError, an exception other than Error, an error of several
// lines, memory beyond the request (see LimitMemory), or a run of more than 10 s.
std::optional<Finding> RunHostileCase(const HostileCase& made, HostileCounts* counts);

// The system gives this process no more than 2 GiB: what asks it for more without asking the limits
// gets std::bad_alloc, which RunHostileCase notices. Does nothing under sanitizers.
void LimitMemory();

}  // namespace coracle
