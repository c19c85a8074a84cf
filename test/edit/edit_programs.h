#pragma once
// Programs for the tests of edit/.

#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/layer.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace coracle {

inline ProgramDesc ProgramOf(const std::string& text) {
  return std::move(ParseModelText(text, "text").main);
}

// The program with its parameters as its startup program draws them.
inline ProgramDesc ProgramOf(const std::string& text, Scope& scope) {
  BuiltModel model = ParseModelText(text, "text");
  Executor().Run(model.startup, scope, {}, {});
  return std::move(model.main);
}

// Calls a function with x, a variable [2] of the program, which draws q in a branch of its own.
inline void AppendCallThatDraws(ProgramDesc& program) {
  BlockDesc& function = program.AppendBlock(0);
  function.Var("p").SetShape({2});
  function.Var("r").SetShape({2});
  function.Var("yes").SetDType(DType::kBool);
  function.Var("yes").SetShape({1});
  function.AppendOp("scale", {{"X", {"p"}}}, {{"Out", {"r"}}});
  function.AppendOp("fill_constant", {}, {{"Out", {"yes"}}},
                    {{"shape", std::vector<int64_t>{1}}, {"dtype", int32_t{0}}, {"value", 1.0f}});
  BlockDesc& branch = program.AppendBlock(function);
  branch.AppendOp("uniform_random", {}, {{"Out", {"r"}}}, {{"shape", std::vector<int64_t>{2}}});
  function.Var("scopes").SetType(VarType::kStepScopes);
  function.AppendOp("conditional_block", {{"Cond", {"yes"}}},
                    {{"Out", {"r"}}, {"Scope", {"scopes"}}},
                    {{"sub_block", BlockRef{branch.idx()}}, {"is_scalar_condition", true}});
  BlockDesc& root = program.Root();
  root.Var("q").SetShape({2});
  root.AppendOp("call", {{"X", {"x"}}}, {{"Out", {"q"}}},
                {{"sub_block", BlockRef{function.idx()}},
                 {"parameters", std::vector<std::string>{"p"}},
                 {"results", std::vector<std::string>{"r"}}});
}

inline std::vector<std::string> OpTypes(const BlockDesc& block) {
  std::vector<std::string> types;
  block.ForEachOp([&](const OpDesc& op) { types.push_back(op.type()); });
  return types;
}

inline std::vector<float> Floats(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kFloat32);
  return {wide.data<float>(), wide.data<float>() + wide.numel()};
}

// The error that `change` throws: the message and its details; "" if it throws none.
template <class F>
std::string WhatIsThrown(const F& change) {
  try {
    change();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// A chain of `ops` ops x -> v1 -> v2 -> ..., each the double of the one before.
inline ProgramDesc Chain(size_t ops) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  const auto declare = [&](const std::string& name) {
    VarDesc& var = root.Var(name);
    var.SetDType(DType::kFloat32);
    var.SetShape({-1, 2});
  };
  std::string last = "x";
  declare(last);
  for (size_t i = 1; i <= ops; ++i) {
    const std::string next = "v" + std::to_string(i);
    declare(next);
    root.AppendOp("scale", {{"X", {last}}}, {{"Out", {next}}}, {{"scale", 2.0f}});
    last = next;
  }
  return program;
}

}  // namespace coracle
