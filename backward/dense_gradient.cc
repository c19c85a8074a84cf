#include <coracle/backward/dense_gradient.h>
#include <coracle/framework/op/infer_context.h>

namespace coracle {

std::vector<std::string> DenseNames(BlockDesc& block, std::vector<std::string> names,
                                    const OpRegistry& ops) {
  for (std::string& name : names) {
    const VarDesc* var = block.FindVar(name);
    if (!var || var->type() != VarType::kSelectedRows) continue;
    const std::string dense = block.program().UniqueName(name + "@DENSE");
    const OpDesc& op = block.AppendOp("get_tensor_from_selected_rows", {{"X", {name}}},
                                      {{"Out", {dense}}}, {{kOpRoleAttr, int32_t{kBackward}}});
    InferOp(block, op, ops);
    name = dense;
  }
  return names;
}

}  // namespace coracle
