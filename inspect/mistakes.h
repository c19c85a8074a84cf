#pragma once
// Likely mistakes of programs that are right op by op: a loss that takes logits and gets
// probabilities, and the like.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle {

struct Mistake {
  const OpDesc* op = nullptr;  // of the program; nullptr for one that is about no op
  std::string var;             // that it is about
  std::string message;         // one line, without the place
  bool unread = false;         // the variable is an input, and no op reads it
  std::string place = {};      // "net.pbtxt:7:9", "op 7 of block 0"; "" where none is known
};

// * A loss that applies softmax, sigmoid or log itself, and reads the result of one.
// * An input that no op reads: of a feed op, or of a model text.
// * In a program with fetch ops that trains nothing: what FindDeployedMistakes finds.
// Linear in the size of the program.
std::vector<Mistake> FindMistakes(const ProgramDesc& program, const OpRegistry& ops);

// In a program that trains nothing: a dropout that still drops, and error clips, which never act.
std::vector<Mistake> FindDeployedMistakes(const ProgramDesc& program);

// With the place before the message.
std::string DescribeMistake(const Mistake& mistake);

}  // namespace coracle
