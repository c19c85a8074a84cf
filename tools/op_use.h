#pragma once
// Which op types a program holds, and what there is of each.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle::tools {

struct OpUse {
  std::string type;
  size_t count = 0;
  const OpSpec* def = nullptr;  // nullptr: the registry lacks it
  std::string refused;          // then why, if the type is known
};

// The most frequent types first.
std::vector<OpUse> UsesOf(const ProgramDesc& program, const OpRegistry& ops);

// Whether backward through the op is an error: there is none, or it has no gradient rule.
bool LacksGradient(const OpUse& use);

// For each type its count, and whether it has a kernel, a gradient and a fast kernel.
std::string TableOfOps(const std::vector<OpUse>& uses);
std::string JsonOfOps(const std::vector<OpUse>& uses);
// "gradients: 3 ops of 2 types have none (top_k 2, foo 1)".
std::string DescribeLackingGradients(const std::vector<OpUse>& uses);

}  // namespace coracle::tools
