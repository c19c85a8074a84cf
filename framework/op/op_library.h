#pragma once
// Ops from a shared object, an *op library*. Its source includes this header and defines
// CoracleRegisterOps. It is linked to no libcoracle of its own: it takes Coracle's symbols from the
// program that loads it (CMake: a MODULE that links to coracle::headers). The `coracle` command
// exports them, and so does every program that uses the shared libcoracle; one that is linked to
// the static libcoracle needs ENABLE_EXPORTS.

#include <coracle/framework/base/version.h>
#include <coracle/framework/op/op_registry.h>

#include <string>

// An op library exports this function; its name says which version the library was built against.
#define CORACLE_OP_LIBRARY_JOIN(major, minor, patch) CoracleOpLibrary_##major##_##minor##_##patch
#define CORACLE_OP_LIBRARY_NAME(major, minor, patch) CORACLE_OP_LIBRARY_JOIN(major, minor, patch)
extern "C" [[gnu::used, gnu::visibility("default")]] inline void CORACLE_OP_LIBRARY_NAME(
    CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR, CORACLE_VERSION_PATCH)() {}

// What an op library defines.
extern "C" [[gnu::visibility("default")]] void CoracleRegisterOps(coracle::OpRegistry& ops);

namespace coracle {

// Loads the library (kept loaded for the life of the process) and lets it register its ops. Throws
// kNotFound when it cannot be loaded or has no CoracleRegisterOps, and kInvalidArgument when it was
// built against another version or holds a libcoracle of its own, before any of its code is run.
void LoadOpLibrary(const std::string& path, OpRegistry& ops);

}  // namespace coracle
