#include <coracle/edit/edit.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/inspect/inspect.h>
#include <coracle/inspect/json.h>
#include <coracle/inspect/multiply_adds.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace coracle::tools {
namespace {

struct SummaryFlags {
  std::vector<std::string> shape = {};
  bool json = false;
};

Fields<SummaryFlags> SummaryFields() {
  return Fields<SummaryFlags>("")
      .Add("shape", &SummaryFlags::shape, kShapeDoc)
      .Add("json", &SummaryFlags::json, "print JSON");
}

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
      if (var.type() == VarType::kFeedMinibatch || var.type() == VarType::kFetchList) continue;
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

// Totals over the parameters.
struct ParameterTotals {
  size_t count = 0;
  double elements = 0, bytes = 0;
};

ParameterTotals ParametersOf(const ProgramDesc& program) {
  ParameterTotals totals;
  for (const std::string& name : program.Parameters()) {
    const VarDesc* var = program.Root().FindVar(name);
    ++totals.count;
    totals.elements += Elements(var->shape());
    totals.bytes += Bytes(*var);
  }
  return totals;
}

// Makes a line "inputs         x float32[-1, 3, 32, 32]" and a line for each further name.
std::string EndsText(const char* title, const ProgramDesc& program,
                     const std::vector<std::string>& names) {
  if (names.empty()) return fmt::format("{:<15}none\n", title);
  std::string text;
  for (const std::string& name : names) {
    const VarDesc* var = program.Root().FindVar(name);
    text += fmt::format("{:<15}{} {}\n", text.empty() ? title : "", Shown(name),
                        var ? var->meta().ToString() : "(not declared)");
  }
  return text;
}

std::string Overview(const ProgramDesc& program, const Totals& totals) {
  const ParameterTotals parameters = ParametersOf(program);
  const char* unknown = totals.unknown_dims ? " (unknown dims taken as 1, see --shape)" : "";
  return EndsText("inputs", program, InputNames(program, DefaultOps())) +
         EndsText("outputs", program, OutputNames(program, DefaultOps())) +
         fmt::format("blocks         {}\nops            {}\nvariables      {}\n",
                     program.NumBlocks(), totals.ops, totals.vars) +
         fmt::format("parameters     {} with {} elements, {}\n", parameters.count,
                     CountText(parameters.elements), BytesText(parameters.bytes)) +
         fmt::format("persistable    {}, {}\n", totals.persistables,
                     BytesText(totals.persistable_bytes)) +
         fmt::format("activations    {} if all were kept{}\n", BytesText(totals.other_bytes),
                     unknown) +
         fmt::format("multiply-adds  {}{}\n", CountText(totals.multiply_adds), unknown);
}

// The op types, the most frequent first.
std::vector<std::pair<std::string, TypeTotals>> SortedTypes(const Totals& totals) {
  std::vector<std::pair<std::string, TypeTotals>> sorted(totals.types.begin(), totals.types.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  return sorted;
}

std::string TableOfTypes(const Totals& totals) {
  std::string text = fmt::format("{:>7}  {:<32} {:>13}\n", "ops", "type", "multiply-adds");
  for (const auto& entry : SortedTypes(totals)) {
    const double count = entry.second.multiply_adds;
    std::string line = fmt::format("{:>7}  {:<32} {:>13}", entry.second.count, Shown(entry.first),
                                   count > 0 ? CountText(count) : "");
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

Json EndsJson(const ProgramDesc& program, const std::vector<std::string>& names) {
  Json list = Json::array();
  for (const std::string& name : names) {
    const VarDesc* var = program.Root().FindVar(name);
    if (!var) continue;
    list.push_back({{"name", JsonString(name)},
                    {"dtype", ToString(var->dtype())},
                    {"shape", JsonShape(var->shape())}});
  }
  return list;
}

// Writes a count as an integer, unless it is too large.
Json CountJson(double count) {
  return count < 0x1p53 ? Json(static_cast<int64_t>(count)) : JsonNumber(count);
}

std::string DescribeAsJson(const ProgramDesc& program, const Totals& totals) {
  const ParameterTotals parameters = ParametersOf(program);
  Json json = JsonDocument("summary");
  json["inputs"] = EndsJson(program, InputNames(program, DefaultOps()));
  json["outputs"] = EndsJson(program, OutputNames(program, DefaultOps()));
  json["blocks"] = program.NumBlocks();
  json["ops"] = totals.ops;
  json["variables"] = totals.vars;
  json["parameters"] = {{"count", parameters.count},
                        {"elements", CountJson(parameters.elements)},
                        {"bytes", CountJson(parameters.bytes)}};
  json["persistable"] = {{"count", totals.persistables},
                         {"bytes", CountJson(totals.persistable_bytes)}};
  json["activation_bytes"] = CountJson(totals.other_bytes);
  json["multiply_adds"] = CountJson(totals.multiply_adds);
  json["unknown_dims"] = totals.unknown_dims;
  json["types"] = Json::array();
  for (const auto& [type, type_totals] : SortedTypes(totals)) {
    json["types"].push_back({{"type", JsonString(type)},
                             {"ops", type_totals.count},
                             {"multiply_adds", CountJson(type_totals.multiply_adds)}});
  }
  return JsonText(json);
}

int RunSummary(const Args& args, const SummaryFlags& flags) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  const auto shapes = ShapesOf(flags.shape);
  // An ONNX model is imported for them; of another program they are set below, with its own errors.
  if (IsOnnx(ProgramFile(args[0]))) FLAGS_shape = Join(flags.shape, ",");
  ProgramDesc program = ReadAnyProgram(args[0]);
  if (!shapes.empty()) SetShapes(program, shapes, DefaultOps());
  Totals totals;
  for (int i = 0; i < program.NumBlocks(); ++i) totals.AddBlock(program.Block(i));
  if (flags.json)
    PrintData(DescribeAsJson(program, totals));
  else
    Print(Overview(program, totals) + "\n" + TableOfTypes(totals));
  return 0;
}

}  // namespace

Command SummaryCommand() {
  return MakeCommand(
      {"summary", "names inputs and outputs, counts ops, parameters, memory and multiply-adds",
       "summary PROGRAM [--shape=VAR:8x3x32x32,...] [--json]",
       "  coracle summary inference.pdmodel\n"
       "  coracle summary inference.pdmodel --shape=x:1x3x48x192\n"},
      SummaryFields(), RunSummary);
}

}  // namespace coracle::tools
