#include <coracle/edit/set_shape.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/infer_context.h>
#include <fmt/format.h>

namespace coracle {
namespace {

void SetShape(BlockDesc& root, const std::string& name, const Shape& shape) {
  VarDesc& var = Variable::Of(root, name).desc();
  // As for feeds: files of old exports declare the shape of their export.
  if (var.need_check_feed() && !var.shape().CompatibleWith(shape)) {
    ThrowInvalid(fmt::format("{} is declared {}, so it cannot be {}", Quote(var.name()),
                             var.meta().ToString(), shape.ToString()));
  }
  var.SetShape(shape);
}

}  // namespace

void SetShapes(ProgramDesc& program, const std::vector<std::pair<std::string, Shape>>& shapes,
               const OpRegistry& ops) {
  BlockDesc& root = program.Root();
  for (const auto& [name, shape] : shapes) SetShape(root, name, shape);
  VerifyOrThrow(program, ops);
  for (size_t i = 0; i < root.NumOps(); ++i) {
    if (ops.Get(root.op(i).type()).kind == OpKind::kCompute) InferOp(root, root.op(i), ops);
  }
}

}  // namespace coracle
