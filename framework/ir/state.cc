#include <coracle/framework/ir/program.h>
#include <fmt/format.h>

namespace coracle {
namespace {

VarDesc& Declare(BlockDesc& block, const std::string& name, DType dtype, const Shape& shape) {
  VarDesc& var = block.Var(name);
  var.SetDType(dtype);
  var.SetShape(shape);
  var.SetStopGradient(true);
  return var;
}

}  // namespace

std::string MakeState(ProgramDesc& main, ProgramDesc& startup, const std::string& name, DType dtype,
                      const Shape& shape, double value) {
  for (ProgramDesc* program : {&main, &startup})
    Declare(program->Root(), name, dtype, shape).SetPersistable(true);
  AttrList attrs = {{"shape", shape.ToVector()},
                    {"dtype", static_cast<int32_t>(dtype)},
                    {"value", static_cast<float>(value)},
                    {"force_cpu", false}};
  if (dtype != DType::kFloat32) attrs.push_back({"str_value", fmt::format("{}", value)});
  startup.Root().AppendOp("fill_constant", {}, {{"Out", {name}}}, std::move(attrs));
  return name;
}

std::string MakeTemporary(BlockDesc& block, const std::string& prefix, DType dtype,
                          const Shape& shape) {
  std::string name = block.program().UniqueName(prefix);
  Declare(block, name, dtype, shape);
  return name;
}

}  // namespace coracle
