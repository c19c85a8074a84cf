#include "op_case.h"

#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>

namespace coracle {
namespace {

// False if a value is no plain tensor.
bool Write(const std::string& folder, const char* prefix, const char* list,
           const std::map<std::string, const VarValue*>& values) {
  std::string names;
  size_t i = 0;
  for (const auto& [name, value] : values) {
    const auto* tensor = std::get_if<Tensor>(value);
    if (!tensor || !tensor->lod().empty() || IsComplex(tensor->dtype())) return false;
    WriteNpy(*tensor, fmt::format("{}/{}_{}.npy", folder, prefix, i++));
    names += name + "\n";
  }
  WriteFileAtomic(folder + "/" + list, names);
  return true;
}

}  // namespace

void WriteOpCase(const ProgramDesc& program, const VarValues& inputs, const VarValues& results) {
  const char* directory = std::getenv("CORACLE_OP_CASES");
  if (!directory) return;
  static int number = 0;
  const OpDesc& op = program.Root().op(0);
  const std::string folder = fmt::format("{}/{:05}_{}", directory, number++, op.type());
  std::map<std::string, const VarValue*> in, out;
  for (const auto& [name, value] : inputs) in[name] = &value;
  op.ForEachOutput([&](const std::string& name) { out[name] = &results.at(name); });
  MakeDirectories(folder);
  if (!Write(folder, "in", "inputs.txt", in) || !Write(folder, "want", "wanted.txt", out))
    return RemoveDirectory(folder);
  WriteProgram(program, folder + "/program.pb");
}

}  // namespace coracle
