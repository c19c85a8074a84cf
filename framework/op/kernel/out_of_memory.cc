#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/kernel/out_of_memory.h>
#include <coracle/framework/op/op_def.h>
#include <fmt/format.h>

namespace coracle::inline internal {

OpName NameOf(const OpDesc& op) {
  OpName name{op.type(), "", Locate(op)};
  op.AnyOutput([&](const std::string& output) {
    name.output = output;
    return true;
  });
  return name;
}

void ThrowOutOfMemory(const OpName& op, const std::string& message) {
  const std::string output =
      op.output.empty() ? "" : fmt::format(" (output var {})", QuoteVar(op.output));
  throw Error(ErrorCode::kResourceExhausted, fmt::format("{}: {}{}", op.type, message, output),
              "  " + op.where);
}

}  // namespace coracle::inline internal
