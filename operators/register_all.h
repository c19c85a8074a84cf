#pragma once
// What CMake makes of ops.list.

#include <coracle/framework/op/op_registry.h>

#include <functional>
#include <string>

namespace coracle::internal {

// Registers the ops of all files; after each calls `done`, if there is one, with the line
// of ops.list.
void RegisterAll(OpRegistry& ops, const std::function<void(const std::string& file)>& done);

}  // namespace coracle::internal
