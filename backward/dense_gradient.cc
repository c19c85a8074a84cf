#include <coracle/backward/backward.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/op/writer.h>

namespace coracle {

std::vector<std::string> DenseNames(BlockDesc& block, std::vector<std::string> names,
                                    const OpRegistry& ops) {
  const EditGuard guard(block.program());
  for (std::string& name : names) {
    const VarDesc* var = block.FindVar(name);
    if (!var || var->type() != VarType::kSelectedRows) continue;
    const std::string dense = block.program().UniqueName(name + "@DENSE");
    Writer(block, ops, {.role = kBackward})
        .Into(dense, "get_tensor_from_selected_rows", {{"X", {name}}});
    name = dense;
  }
  return names;
}

}  // namespace coracle
