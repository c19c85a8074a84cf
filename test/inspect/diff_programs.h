#pragma once
// Small programs, and what differs between two, for tests.

#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle {

using Strings = std::vector<std::string>;

inline ProgramDiff Diff(const ProgramDesc& a, const ProgramDesc& b) {
  return DiffPrograms(a, b, DefaultOps());
}

inline std::string Text(const ProgramDesc& a, const ProgramDesc& b) {
  return DiffText(Diff(a, b), a, b, DefaultOps());
}

inline void ExpectPart(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in\n" << text;
}

inline OpDesc& Append(BlockDesc& block, const std::string& type, const std::string& x,
                      const std::string& out, AttrList attrs = {}) {
  for (const std::string& name : {x, out}) block.Var(name).SetShape({-1, 3});
  return block.AppendOp(type, {{"X", {x}}}, {{"Out", {out}}}, std::move(attrs));
}

// x -> names[0] -> names[1] ..., each by the op of its place.
inline ProgramDesc Chain(const Strings& types, const Strings& names) {
  ProgramDesc program;
  std::string x = "x";
  for (size_t i = 0; i < types.size(); ++i) {
    Append(program.Root(), types[i], x, names[i]);
    x = names[i];
  }
  return program;
}

inline size_t NumOps(const ProgramDiff& diff) {
  size_t count = 0;
  for (const BlockDiff& block : diff.blocks) count += block.ops.size();
  return count;
}

}  // namespace coracle
