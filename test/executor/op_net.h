#pragma once
// Programs written op by op, and the errors of their runs.

#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace coracle {

// Small programs written op by op.
class OpNet {
 public:
  ProgramDesc program;

  std::string Var(const std::string& name, const Shape& shape, bool persistable = false,
                  DType dtype = DType::kFloat32) {
    VarDesc& var = program.Root().Var(name);
    var.SetShape(shape);
    var.SetDType(dtype);
    if (persistable) var.SetPersistable(true);
    return name;
  }
  std::string Clip(const std::string& x, const std::string& out, float min, float max) {
    InferOp(program.Root(),
            program.Root().AppendOp("clip", {{"X", {x}}}, {{"Out", {out}}},
                                    {{"min", min}, {"max", max}}),
            DefaultOps());
    return out;
  }
  std::string Mul(const std::string& x, const std::string& y, const std::string& out) {
    InferOp(program.Root(),
            program.Root().AppendOp("mul", {{"X", {x}}, {"Y", {y}}}, {{"Out", {out}}}),
            DefaultOps());
    return out;
  }
};

inline void ExpectMessage(const std::function<void()>& run, const std::string& text) {
  try {
    run();
    ADD_FAILURE() << "no error; expected one with: " << text;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

}  // namespace coracle
