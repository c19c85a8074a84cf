#pragma once
// The version of an op type in the program that holds the op (its op_version_map).

#include <coracle/framework/ir/program.h>

#include <cstdint>
#include <optional>

namespace coracle::inline internal {

// Empty for a program without such a map: it says nothing on versions. Types that a map leaves out
// have the version 0.
inline std::optional<int32_t> VersionOf(const OpDesc& op) {
  const BlockDesc* block = op.block();
  if (!block || !block->program().op_versions()) return std::nullopt;
  for (const auto& [type, version] : *block->program().op_versions())
    if (type == op.type()) return version;
  return 0;
}

}  // namespace coracle::inline internal
