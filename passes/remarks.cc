#include <coracle/framework/ir/origin.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/passes/remarks.h>

#include <array>

namespace coracle::inline internal {
namespace {

constexpr std::array<const char*, 6> kCopied = {kOpRoleAttr,      kOpNamescopeAttr,
                                                kOpCallstackAttr, kOpDeviceAttr,
                                                kForwardOpAttr,   kTrainingStageAttr};

}  // namespace

void CopyRemarks(const OpDesc& from, OpDesc& to) {
  for (const char* name : kCopied) {
    if (const Attribute* value = from.FindAttr(name)) to.SetAttr(name, *value);
  }
  AddOrigins(from, to);
}

// Adds in halves, because each addition copies a whole list.
void AddOriginsOfAll(std::span<const OpDesc* const> from, OpDesc& to) {
  if (from.size() == 1) AddOrigins(*from[0], to);
  if (from.size() < 2) return;
  for (const auto& half : {from.first(from.size() / 2), from.subspan(from.size() / 2)}) {
    OpDesc both;
    AddOriginsOfAll(half, both);
    AddOrigins(both, to);
  }
}

}  // namespace coracle::inline internal
