#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "commands.h"
#include "flags.h"
#include "program_input.h"

DEFINE_string(shape, "",
              "shapes of inputs, whose unknown dims else count as 1: `VAR:8x3x32x32,...`");

namespace coracle::tools {
namespace {

// Counts are doubles: a hostile program's dims may have any product.
double Elements(const Shape& shape, int begin, int end) {
  double product = 1;
  for (int i = begin; i < end; ++i) product *= static_cast<double>(std::max<int64_t>(shape[i], 1));
  return product;
}
double Elements(const Shape& shape) { return Elements(shape, 0, shape.rank()); }

double Bytes(const VarDesc& var) {
  if (var.type() != VarType::kLoDTensor) return 0;
  return Elements(var.shape()) * static_cast<double>(SizeOf(var.dtype()));
}

std::string BytesText(double bytes) {
  return bytes < 1e18 ? HumanBytes(static_cast<uint64_t>(bytes))
                      : fmt::format("{:.3g} bytes", bytes);
}
std::string CountText(double count) {
  return count < 1e18 ? HumanCount(static_cast<uint64_t>(count)) : fmt::format("{:.3g}", count);
}

const VarDesc* VarIn(const OpDesc& op, const char* slot) {
  const auto& args = op.Input(slot);
  return args.empty() ? nullptr : op.block()->FindVarRecursive(args[0]);
}
const VarDesc* VarOut(const OpDesc& op, const char* slot) {
  const auto& args = op.Output(slot);
  return args.empty() ? nullptr : op.block()->FindVarRecursive(args[0]);
}

int64_t IntAttr(const OpDesc& op, const char* name, int64_t otherwise) {
  const Attribute* value = op.FindAttr(name);
  Attribute number;
  if (!value || !ConvertAttribute(*value, AttrType::kLong, &number)) return otherwise;
  return std::get<int64_t>(number);
}
bool BoolAttr(const OpDesc& op, const char* name) {
  const Attribute* value = op.FindAttr(name);
  Attribute flag;
  return value && ConvertAttribute(*value, AttrType::kBoolean, &flag) && std::get<bool>(flag);
}

// Each output element of a convolution takes one row of the filter [out, in / groups, ...].
double ConvMultiplyAdds(const VarDesc* out, const VarDesc* filter) {
  if (!out || !filter) return 0;
  return Elements(out->shape()) * Elements(filter->shape(), 1, filter->shape().rank());
}

double MulMultiplyAdds(const OpDesc& op, const VarDesc* x, const VarDesc* y) {
  if (!x || !y) return 0;
  const int columns =
      static_cast<int>(std::clamp<int64_t>(IntAttr(op, "y_num_col_dims", 1), 0, y->shape().rank()));
  return Elements(x->shape()) * Elements(y->shape(), columns, y->shape().rank());
}

double MatmulMultiplyAdds(const OpDesc& op, const VarDesc* x, const VarDesc* y,
                          const char* transpose) {
  if (!x || !y || x->shape().rank() < 1 || y->shape().rank() < 1) return 0;
  const int rank = y->shape().rank();
  const int64_t n = rank < 2 ? 1 : y->shape()[BoolAttr(op, transpose) ? rank - 2 : rank - 1];
  // X has batch, m and k; with a shared X (rank 2) the batch is Y's.
  double batch = 1;
  if (x->shape().rank() <= 2 && rank > 2) batch = Elements(y->shape(), 0, rank - 2);
  return batch * Elements(x->shape()) * static_cast<double>(std::max<int64_t>(n, 1));
}

// 0 for ops that are no products of matrices. A gradient op takes as much for each gradient.
double MultiplyAdds(const OpDesc& op) {
  std::string type = op.type();
  const bool grad = type.ends_with("_grad");
  if (grad) type.resize(type.size() - 5);
  double count = 0;
  if (type == "conv2d" || type == "depthwise_conv2d") {
    count = ConvMultiplyAdds(grad ? VarIn(op, "Output@GRAD") : VarOut(op, "Output"),
                             VarIn(op, "Filter"));
  } else if (type == "conv2d_transpose" || type == "depthwise_conv2d_transpose") {
    count = ConvMultiplyAdds(VarIn(op, "Input"), VarIn(op, "Filter"));
  } else if (type == "mul") {
    count = MulMultiplyAdds(op, VarIn(op, "X"), VarIn(op, "Y"));
  } else if (type == "matmul") {
    count = MatmulMultiplyAdds(op, VarIn(op, "X"), VarIn(op, "Y"), "transpose_Y");
  } else if (type == "matmul_v2") {
    count = MatmulMultiplyAdds(op, VarIn(op, "X"), VarIn(op, "Y"), "trans_y");
  }
  if (!grad || count == 0) return count;
  double gradients = 0;
  for (const char* slot : {"X@GRAD", "Y@GRAD", "Input@GRAD", "Filter@GRAD"})
    gradients += op.HasOutput(slot) ? 1 : 0;
  return count * gradients;
}

struct TypeTotals {
  size_t count = 0;
  double multiply_adds = 0;
};

struct Totals {
  std::map<std::string, TypeTotals> types;
  size_t ops = 0, vars = 0, persistables = 0;
  double persistable_bytes = 0, other_bytes = 0, multiply_adds = 0;
  bool unknown_dims = false;

  void AddBlock(const BlockDesc& block) {
    ops += block.NumOps();
    vars += block.NumVars();
    for (size_t i = 0; i < block.NumVars(); ++i) {
      const VarDesc& var = block.var(i);
      if (var.persistable()) ++persistables;
      (var.persistable() ? persistable_bytes : other_bytes) += Bytes(var);
      unknown_dims |= !var.shape().IsKnown();
    }
    for (size_t i = 0; i < block.NumOps(); ++i) {
      TypeTotals& type = types[block.op(i).type()];
      const double count = MultiplyAdds(block.op(i));
      ++type.count;
      type.multiply_adds += count;
      multiply_adds += count;
    }
  }
};

// VAR:8x3x32x32, read from the end: a variable's name may have colons.
void SetShape(BlockDesc& root, const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0)
    throw UsageError("--shape takes VAR:8x3x32x32, got " + Quote(text));
  VarDesc& var = Variable::Of(root, text.substr(0, colon)).desc();
  Shape shape;
  for (const std::string& part : Split(text.substr(colon + 1), 'x')) {
    int64_t dim = 0;
    if (!ParseInt64(part, &dim) || dim < 0 || shape.rank() == Shape::kMaxRank)
      throw UsageError("--shape takes VAR:8x3x32x32, got " + Quote(text));
    shape.Append(dim);
  }
  // As for feeds: files of old exports declare the shape of their export.
  if (var.need_check_feed() && !var.shape().CompatibleWith(shape)) {
    ThrowInvalid(fmt::format("{} is declared {}, so it cannot be {}", Quote(var.name()),
                             var.meta().ToString(), shape.ToString()));
  }
  var.SetShape(shape);
}

// Gives the inputs the shapes of --shape, and the rest of the root block what follows from them.
void SetShapes(ProgramDesc& program) {
  const std::vector<std::string> shapes = ListFlag(FLAGS_shape);
  if (shapes.empty()) return;
  BlockDesc& root = program.Root();
  for (const std::string& text : shapes) SetShape(root, text);
  VerifyOrThrow(program, DefaultOps());
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const OpSpec& def = DefaultOps().Get(root.op(i).type());
    if (def.kind == OpKind::kCompute) InferOp(root, root.op(i), DefaultOps());
  }
}

std::string Overview(const ProgramDesc& program, const Totals& totals) {
  double elements = 0, bytes = 0;
  const std::vector<std::string> names = program.Parameters();
  for (const std::string& name : names) {
    const VarDesc* var = program.Root().FindVar(name);
    elements += Elements(var->shape());
    bytes += Bytes(*var);
  }
  const char* unknown = totals.unknown_dims ? " (unknown dims taken as 1, see --shape)" : "";
  return fmt::format("blocks         {}\nops            {}\nvariables      {}\n",
                     program.NumBlocks(), totals.ops, totals.vars) +
         fmt::format("parameters     {} with {} elements, {}\n", names.size(), CountText(elements),
                     BytesText(bytes)) +
         fmt::format("persistable    {}, {}\n", totals.persistables,
                     BytesText(totals.persistable_bytes)) +
         fmt::format("activations    {} if all were kept{}\n", BytesText(totals.other_bytes),
                     unknown) +
         fmt::format("multiply-adds  {}{}\n", CountText(totals.multiply_adds), unknown);
}

// The most frequent types first.
std::string TableOfTypes(const Totals& totals) {
  std::vector<std::pair<std::string, TypeTotals>> sorted(totals.types.begin(), totals.types.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  std::string text = fmt::format("{:>7}  {:<32} {:>13}\n", "ops", "type", "multiply-adds");
  for (const auto& entry : sorted) {
    const double count = entry.second.multiply_adds;
    std::string line = fmt::format("{:>7}  {:<32} {:>13}", entry.second.count, Shown(entry.first),
                                   count > 0 ? CountText(count) : "");
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

int RunSummary(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  ProgramDesc program = ReadAnyProgram(args[0]);
  SetShapes(program);
  Totals totals;
  for (int i = 0; i < program.NumBlocks(); ++i) totals.AddBlock(program.Block(i));
  Print(Overview(program, totals) + "\n" + TableOfTypes(totals));
  return 0;
}

}  // namespace

Command SummaryCommand() {
  return {"summary",
          "counts ops, parameters, memory and multiply-adds",
          "summary PROGRAM [--shape=VAR:8x3x32x32,...]",
          "  coracle summary inference.pdmodel\n"
          "  coracle summary inference.pdmodel --shape=x:1x3x48x192\n",
          {"shape"},
          RunSummary};
}

}  // namespace coracle::tools
