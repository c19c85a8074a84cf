#pragma once
// Lists the op types of a program, and what the registry provides for each.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle::tools {

struct OpUse {
  std::string type;
  size_t count = 0;
  const OpSpec* def = nullptr;  // nullptr if the registry lacks it
  std::string refused;          // the reason, if the type is known but refused
};

// The op types of a program, the most frequent first.
std::vector<OpUse> UsesOf(const ProgramDesc& program, const OpRegistry& ops);

// Whether backward through the op is an error: the registry lacks it, or it has no gradient rule.
bool LacksGradient(const OpUse& use);

// Makes a row for each type: its count, and whether it has a kernel, a gradient and a fast kernel.
std::string TableOfOps(const std::vector<OpUse>& uses);
std::string JsonOfOps(const std::vector<OpUse>& uses);
// Makes a line such as "gradients: 3 ops of 2 types have none (top_k 2, foo 1)".
std::string DescribeLackingGradients(const std::vector<OpUse>& uses);

}  // namespace coracle::tools
