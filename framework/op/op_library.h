#pragma once
// Ops from a shared object: it exports `extern "C" void CoracleRegisterOps(coracle::OpRegistry&
// ops)`.

#include <coracle/framework/op/op_registry.h>

#include <string>

namespace coracle {

// Loads the library (kept loaded for the life of the process) and lets it register its ops. Throws
// kNotFound when it cannot be loaded or has no such function.
void LoadOpLibrary(const std::string& path, OpRegistry& ops);

}  // namespace coracle
