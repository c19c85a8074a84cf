#include <coracle/framework/ir/role.h>

namespace coracle::inline internal {

int RoleOf(const OpDesc& op) {
  const Attribute* role = op.FindAttr(kOpRoleAttr);
  Attribute number;
  if (!role || !ConvertAttribute(*role, AttrType::kInt, &number)) return kForward;
  return std::get<int32_t>(number);
}

}  // namespace coracle::inline internal
