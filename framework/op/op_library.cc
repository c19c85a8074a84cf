#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_library.h>
#include <dlfcn.h>
#include <fmt/format.h>

namespace coracle {

void LoadOpLibrary(const std::string& path, OpRegistry& ops) {
  // dlopen looks for a bare name in the system's directories only.
  const bool here = path.find('/') == path.npos && FileExists(path);
  void* library = ::dlopen(here ? ("./" + path).c_str() : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("cannot load the op library {}: {}", Quote(path, 300), ::dlerror()));
  }
  auto* entry = reinterpret_cast<void (*)(OpRegistry&)>(::dlsym(library, "CoracleRegisterOps"));
  if (!entry) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("the op library {} exports no CoracleRegisterOps; declare it extern \"C\" "
                    "void CoracleRegisterOps(coracle::OpRegistry&)",
                    Quote(path, 300)));
  }
  entry(ops);
}

}  // namespace coracle
