#include <coracle/backward/backward.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/pass.h>
#include <coracle/test/fuzz/any_program.h>

#include <string>
#include <vector>

namespace coracle {
namespace {

// True when the program has no error.
bool IsSound(const ProgramDesc& program) {
  bool sound = true;
  for (const VerifyProblem& problem : Verify(program, DefaultOps())) {
    Require(problem.ToString().size() < 4096, "a problem is too long to read");
    if (problem.rule == "internal") throw std::logic_error(problem.ToString());
    sound = sound && problem.severity != VerifyProblem::Severity::kError;
  }
  return sound;
}

// Variables that no op writes, and the floating-point ones that some op does.
void Split(const BlockDesc& block, std::vector<std::string>* fed,
           std::vector<std::string>* computed) {
  for (size_t i = 0; i < block.NumVars(); ++i) {
    const VarDesc& var = block.var(i);
    if (block.Uses(var.name()).writers.empty())
      fed->push_back(var.name());
    else if (IsFloating(var.dtype()))
      computed->push_back(var.name());
  }
}

void Differentiate(const ProgramDesc& program, const std::vector<std::string>& fed,
                   const std::vector<std::string>& computed) {
  if (fed.empty() || computed.empty()) return;
  ProgramDesc copy = program;
  std::vector<Variable> inputs;
  for (const std::string& name : fed) inputs.push_back(Variable::Of(copy.Root(), name));
  const std::string before = SerializeProgram(copy);
  bool done = false;
  Refusable([&] {
    Gradients({Variable::Of(copy.Root(), computed.back())}, inputs);
    done = true;
    IsSound(copy);
  });
  if (!done && SerializeProgram(copy) != before)
    throw InternalError("refused gradients changed the program");
}

void Rewrite(const ProgramDesc& program, const std::vector<std::string>& fed,
             const std::vector<std::string>& computed) {
  ProgramDesc copy = program;
  PassContext context{DefaultOps(), {fed.begin(), fed.end()}, {}};
  if (!computed.empty()) context.fetches.insert(computed.back());
  Refusable([&] { RunPasses(copy, context); });
}

}  // namespace

void CheckError(const Error& error) {
  if (error.code() == ErrorCode::kInternal) throw error;
  Require(!error.message().empty() && error.message().find('\n') == std::string::npos,
          "an error's first line must stand alone");
}

void UseProgram(const ProgramDesc& program) {
  std::string written = SerializeProgram(program);
  Require(SerializeProgram(ParseProgram(written)) == written, "a second reading differs");
  PrintProgram(program);
  Require(!ProgramToText(program).empty(), "no text");
  bool sound = IsSound(program);
  ProgramDesc test = program.CloneForTest();
  if (!sound || program.Root().NumOps() == 0) return;
  std::vector<std::string> fed, computed;
  Split(program.Root(), &fed, &computed);
  Differentiate(program, fed, computed);
  Rewrite(program, fed, computed);
}

}  // namespace coracle
