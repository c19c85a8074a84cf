#pragma once
// Shapes that InferOp gives to an op of DefaultOps() on its own.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle {

// The inferred shape of output `out`, printed: "[-1, 3]". Dims of the float32 inputs may
// be -1, unknown.
inline std::string InferredShape(const std::string& type,
                                 const std::vector<std::pair<std::string, Shape>>& ins,
                                 const std::string& out, const AttrList& attrs) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  SlotList slots;
  for (const auto& [name, shape] : ins) {
    VarDesc& var = block.Var(name);
    var.SetShape(shape);
    var.SetDType(DType::kFloat32);
    slots.push_back({name, {name}});
  }
  block.Var("result");
  InferOp(block, block.AppendOp(type, slots, {{out, {"result"}}}, attrs), DefaultOps());
  return block.Var("result").shape().ToString();
}

}  // namespace coracle
