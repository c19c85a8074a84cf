#pragma once
// Programs as text, for tests of passes.

#include <coracle/framework/ir/program.h>
#include <fmt/format.h>

#include <string>

namespace coracle {

// One op a line: "Output=y = conv2d(Input=x, Filter=w)".
inline std::string Listing(const ProgramDesc& program) {
  auto slots = [](const SlotList& list) {
    std::string text;
    for (const Slot& slot : list) {
      if (slot.args.empty()) continue;
      text +=
          fmt::format("{}{}={}", text.empty() ? "" : ", ", slot.name, fmt::join(slot.args, "+"));
    }
    return text;
  };
  std::string text;
  for (size_t i = 0; i < program.Root().NumOps(); ++i) {
    const OpDesc& op = program.Root().op(i);
    text += fmt::format("{} = {}({})", slots(op.outputs()), op.type(), slots(op.inputs()));
    for (const char* attr : {"data_format", "data_layout", "shape", "axis"}) {
      if (const Attribute* value = op.FindAttr(attr))
        text += fmt::format(" {}={}", attr, ToString(*value));
    }
    text += "\n";
  }
  return text;
}

}  // namespace coracle
