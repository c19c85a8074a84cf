#include <coracle/framework/op/kernel/random_draws.h>

#include <variant>

namespace coracle::inline internal {

bool DrawsNumbers(const OpDesc& op, const OpRegistry& ops) {
  static const char* const kIsTest = "is_test";
  const OpSpec* spec = ops.Find(op.type());
  if (!spec || !spec->random) return false;
  const Attribute* attr = spec->FindAttr(kIsTest) ? op.FindAttr(kIsTest) : nullptr;
  const bool* is_test = attr ? std::get_if<bool>(attr) : nullptr;
  return !is_test || !*is_test;
}

}  // namespace coracle::inline internal
