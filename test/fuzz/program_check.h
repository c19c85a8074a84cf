#pragma once
// Properties of every program, and the reduction of a program that violates one.

#include <coracle/backward/backward.h>
#include <coracle/test/fuzz/random_program.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace coracle {

// The steps done with a program; drawn once, so that they stay the same while the program
// is reduced.
struct CheckPlan {
  uint64_t seed = 1;     // of the values
  bool spoiled = false;  // errors of any kind are in order
  bool text = false;     // the text format too
  std::vector<std::string> fetches;
  // Backward: of the loss, or of several targets.
  bool of_loss = true;
  bool second = false;  // and backward of the gradients
  bool open = false;    // types of the program were left open
  std::vector<std::string> targets, inputs;
  BackwardOptions backward;
};
CheckPlan DrawPlan(const RandomProgram& program, Choices& choose);

struct CheckCounts {
  uint64_t programs = 0;
  uint64_t refused = 0;  // by the verifier
  uint64_t stopped = 0;  // an error when it ran
  uint64_t ran = 0;      // forward
  uint64_t differentiated = 0, ran_backward = 0;
  uint64_t second_order = 0;                  // gradients of gradients ran
  uint64_t saved = 0;                         // backward saved a value before it was overwritten
  uint64_t compared = 0;                      // fast and reference kernels
  uint64_t gradients = 0;                     // checked by differences
  uint64_t second_gradients = 0;              // those of a penalty on gradients
  uint64_t inner_gradients = 0;               // those that a sub-block took
  std::map<std::string, uint64_t> errors;     // first lines without their numbers and names
  std::map<std::string, uint64_t> ran_types;  // op types in programs that ran, backward's included

  void Add(const CheckCounts& other);
};

struct Finding {
  std::string kind;  // the same for the same defect, more or less
  std::string text;
};

// Verifies, writes and reads, differentiates, compiles and runs the program with fast and with
// reference kernels. An Error is in order where the program is spoiled or its values are to blame;
// nothing is for one of smooth ops, whose gradients are compared with differences too.
std::optional<Finding> CheckProgram(const RandomProgram& program, const CheckPlan& plan,
                                    CheckCounts* counts);

// A program with its plan, all of it drawn from the seed: of smooth ops, of any ops, or spoiled.
struct RandomCase {
  RandomProgram program;
  CheckPlan plan;
};
RandomCase MakeCase(uint64_t seed, const std::vector<std::string>& types = {});

// The program without the ops that the finding can do without.
RandomProgram Minimize(RandomProgram program, const CheckPlan& plan, const std::string& kind);

}  // namespace coracle
