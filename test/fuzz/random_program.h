#pragma once
// Programs made of registered ops at random, with shapes that fit: any op of the registry, and
// loops, branches, recurrent nets and functions around them.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/test/fuzz/choices.h>
#include <coracle/test/fuzz/op_hints.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

// A gradient that a sub-block takes of one of its values; all three are variables of
// the root block.
struct GradientInBlock {
  std::string value;  // one element; what the block differentiated
  std::string input;
  std::string gradient;
};

struct RandomProgram {
  ProgramDesc program;
  std::vector<ProgramInput> inputs;
  // Floating-point tensors of the root block that have been computed.
  std::vector<std::string> computed;
  std::vector<GradientInBlock> inner;
  std::string loss;     // one element; "" when there is none
  bool smooth = false;  // made of smooth ops only
};

struct RandomProgramOptions {
  bool smooth = false;
  size_t max_ops = 8;               // of the root block
  std::vector<std::string> types;   // "": all that the generator draws from
  bool loss = true;                 // a loss of what was computed, in most programs
  bool large_dims = false;          // see OpDrawer::UseLargeDims
  std::optional<DType> dtype = {};  // see OpDrawer::SetDType
};

// The op types that programs are made of: all of the registry but gradient ops, which backward
// adds, and feed, fetch and those that read and write files.
std::vector<std::string> DrawnTypes();

// Every op was accepted by its shape rule.
RandomProgram MakeRandomProgram(Choices& choose, const RandomProgramOptions& options);

// Leaves types of variables that ops write open, as files may.
void LeaveTypesOpen(ProgramDesc& program, Choices& choose);

// Spoils a program: one thing of it is no longer what it was. It may be a valid one still.
void Spoil(ProgramDesc& program, Choices& choose);

// A value of the input; the same for the same seed.
VarValue DrawValue(const ProgramInput& input, uint64_t seed);

}  // namespace coracle
