#include <coracle/backward/backward.h>
#include <coracle/executor/compiled_program.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/inspect/inspect.h>
#include <coracle/inspect/json.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/register_all.h>
#include <coracle/tools/needed_ops.h>
#include <coracle/tools/pass_report.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace coracle::tools {
namespace {

// The ops that every saved program has, and those that the compiler adds on some machines.
constexpr std::array<const char*, 8> kAlways = {"assign",        "cast",  "feed",     "fetch",
                                                "fill_constant", "scale", "reshape2", "transpose2"};

using Types = std::set<std::string>;

void AddTypes(const ProgramDesc& program, Types* types) {
  program.ForEachOp([&](const OpDesc& op) { types->insert(op.type()); });
}

// Compiles the program, with and without constant parameters, and adds the ops of all stages.
void AddCompiled(const ProgramDesc& program, const Scope& scope, Types* types) {
  AddTypes(program, types);
  CompileOptions options;
  options.shape_warnings = false;
  for (const Scope* frozen : {static_cast<const Scope*>(nullptr), &scope}) {
    const auto note = [&](const PassRun& run) {
      AddTypes(run.before, types);
      AddTypes(run.after, types);
    };
    const CompiledProgram compiled(program, FeedsToCompile(program), FetchesToCompile(program, {}),
                                   options, DefaultOps(), {frozen, nullptr}, note);
    AddTypes(compiled.program(), types);
  }
}

// The variables by which a trainer may differentiate: parameters, and inputs of real numbers.
std::vector<Variable> Differentiable(ProgramDesc& program, const std::vector<std::string>& feeds) {
  std::vector<std::string> names = program.Parameters();
  for (const std::string& name : feeds) {
    VarDesc* var = program.Root().FindVar(name);
    if (!var || !IsFloating(var->dtype())) continue;
    var->SetStopGradient(false);
    names.push_back(name);
  }
  std::vector<Variable> variables;
  for (const std::string& name : names) variables.push_back(Variable::Of(program.Root(), name));
  return variables;
}

// Appends the gradients of each result that has one. Returns why there are none; "" if there are.
std::string AppendGradients(ProgramDesc& program) {
  const std::vector<std::string> fed = FeedNames(program), fetched = FetchNames(program);
  const std::vector<std::string> feeds = fed.empty() ? InputNames(program, DefaultOps()) : fed;
  const std::vector<std::string> fetches =
      fetched.empty() ? OutputNames(program, DefaultOps()) : fetched;
  RemoveFeedsAndFetches(program);
  const std::vector<Variable> inputs = Differentiable(program, feeds);
  std::string why = "no result is a real number";
  bool appended = false;
  for (const std::string& name : fetches) {
    const VarDesc* var = program.Root().FindVar(name);
    if (!var || !IsFloating(var->dtype()) || inputs.empty()) continue;
    try {
      Gradients({Variable::Of(program.Root(), name)}, inputs);
      appended = true;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      why = error.message();
    }
  }
  return appended ? "" : why;
}

// The types of each file of ops, by its line in ops.list.
std::map<std::string, Types> TypesOfFiles() {
  std::map<std::string, Types> files;
  OpRegistry ops;
  Types seen;
  internal::RegisterAll(ops, [&](const std::string& file) {
    for (const std::string& type : ops.Types()) {
      if (seen.insert(type).second) files[file].insert(type);
    }
  });
  return files;
}

bool Meets(const Types& a, const Types& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](const std::string& type) { return b.count(type) > 0; });
}

}  // namespace

void AddNeededOps(const ProgramDesc& program, Scope scope, const std::string& source,
                  NeededOps* needed) {
  Types types(kAlways.begin(), kAlways.end());
  FillMissingParameters(program, scope);
  AddCompiled(program, scope, &types);
  ProgramDesc differentiated = program;
  const std::string why = AppendGradients(differentiated);
  if (why.empty())
    AddCompiled(differentiated, scope, &types);
  else
    needed->without_gradients.push_back(fmt::format("of {}: {}", Quote(source), why));
  needed->types.merge(types);
}

std::string TextOfNeededOps(const NeededOps& needed) {
  return Join({needed.types.begin(), needed.types.end()}, "\n") + "\n";
}

std::string JsonOfNeededOps(const NeededOps& needed) {
  Json document = JsonDocument("needed_ops");
  document["ops"] = needed.types;
  document["files"] = Json::array();
  document["left_out"] = Json::array();
  for (const auto& [file, types] : TypesOfFiles()) {
    if (Meets(types, needed.types)) {
      document["files"].push_back({{"file", file}, {"ops", types}});
      continue;
    }
    for (const std::string& type : types) document["left_out"].push_back(type);
  }
  return JsonText(document);
}

}  // namespace coracle::tools
