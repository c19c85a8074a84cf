#include <coracle/framework/ir/origin.h>
#include <coracle/passes/remarks.h>

#include <algorithm>
#include <array>

namespace coracle {
namespace {

constexpr std::array<const char*, 5> kCopied = {kOpRoleAttr, kOpNamescopeAttr, kOpCallstackAttr,
                                                kOpDeviceAttr, kForwardOpAttr};

}  // namespace

bool IsRemark(const std::string& attr) {
  return attr == kOpRoleVarAttr || attr == kOpOriginAttr ||
         std::find(kCopied.begin(), kCopied.end(), attr) != kCopied.end();
}

void CopyRemarks(const OpDesc& from, OpDesc& to) {
  for (const char* name : kCopied) {
    if (const Attribute* value = from.FindAttr(name)) to.SetAttr(name, *value);
  }
  AddOrigins(from, to);
}

}  // namespace coracle
