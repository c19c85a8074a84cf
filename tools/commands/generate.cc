#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/generate_text.h>
#include <coracle/tools/process_ranks.h>

namespace coracle::tools {
namespace {

struct GenerateFlags {
  std::string prompt = "\n";
  int64_t length = 500;
  double temperature = 1;
  CompileFlags compile = {};
};

Fields<GenerateFlags> GenerateFields() {
  return Fields<GenerateFlags>("")
      .Add("prompt", &GenerateFlags::prompt, "`TEXT` to continue")
      .Add("length", &GenerateFlags::length, "number of characters to write")
      .Add("temperature", &GenerateFlags::temperature,
           "a value below 1 favours likely characters; 0 always takes the likeliest")
      .Inline(&GenerateFlags::compile, CompileFields());
}

int RunGenerate(const Args& args, const GenerateFlags& flags) {
  RequireArgs(args, 1, 1, "one MODEL_DIR");
  GenerateOptions options;
  options.prompt = flags.prompt;
  options.length = flags.length;
  options.temperature = flags.temperature;
  options.compile = CompileOptionsOf(flags.compile);
  if (flags.compile.seed > 0) options.seed = flags.compile.seed;
  RequireOneProcess("generate", "`coracle run` runs a program on all of them");
  const CommandLimits limits(flags.compile.limits, CommandLimits::Time::kRuns);
  PrintData(options.prompt + GenerateText(args[0], options) + "\n");
  return 0;
}

}  // namespace

Command GenerateCommand() {
  return MakeCommand(
      {"generate", "writes new text with a character model that a job has trained",
       "generate MODEL_DIR [--prompt=TEXT] [--length=N] [--temperature=T] [--seed=S]",
       "  coracle generate output/shakespeare --prompt='ROMEO:' --length=300 --seed=7\n"},
      GenerateFields(), RunGenerate);
}

}  // namespace coracle::tools
