#include <coracle/edit/set_shape.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "commands.h"
#include "flags.h"
#include "multiply_adds.h"
#include "program_input.h"

namespace coracle::tools {
namespace {

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
  const auto shapes = ShapesFromFlag();
  if (!shapes.empty()) SetShapes(program, shapes, DefaultOps());
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
