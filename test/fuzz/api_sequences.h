#pragma once
// Sequences of random calls of the C++ interface, right and wrong ones: programs are built, edited,
// differentiated, rewritten, saved, compiled and run, with empty, foreign and moved-from arguments.
// Each call succeeds or throws an Error; a refused edit leaves the programs as they were.

#include <coracle/test/fuzz/choices.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace coracle {

struct ApiCounts {
  std::map<std::string, uint64_t> done, refused;  // calls, by name
};

// The failure in the sequence of a seed, or of a fuzzer's bytes, with the calls that led to it;
// nothing if all checks held. A sequence ends with its bytes. `directory` takes the files that
// it writes.
std::optional<std::string> RunApiSequence(Choices choices, const std::string& directory,
                                          ApiCounts* counts);

}  // namespace coracle
