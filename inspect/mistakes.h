#pragma once
// Finds likely mistakes in programs in which each single op is valid, such as a loss that takes
// logits but gets probabilities.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

struct Mistake {
  const OpDesc* op = nullptr;  // an op of the program; nullptr if the mistake is not about an op
  std::string var;             // the variable that it is about
  std::string message;         // one line, without the place
  bool unread = false;         // the variable is an input, and no op reads it
  std::string place = {};      // "net.pbtxt:7:9", "op 7 of block 0"; "" if unknown
};

// Finds these mistakes:
// * A loss that applies softmax, sigmoid or log itself, but reads the result of one.
// * An input, of a feed op or of a model text, that no op reads.
// * In a program with fetch ops that trains nothing: the results of FindDeployedMistakes.
// Linear in the size of the program.
std::vector<Mistake> FindMistakes(const ProgramDesc& program, const OpRegistry& ops);

// For a program that trains nothing: finds dropouts that still drop, and error clips, which
// never act.
std::vector<Mistake> FindDeployedMistakes(const ProgramDesc& program);

// The message, preceded by the place.
std::string DescribeMistake(const Mistake& mistake);

}  // namespace coracle::inline internal
