#include <coracle/train/run/trainer.h>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "process_ranks.h"

DEFINE_string(prompt, "\n", "`TEXT` to continue");
DEFINE_int64(length, 500, "number of characters to write");
DEFINE_double(temperature, 1,
              "a value below 1 favours likely characters; 0 always takes the likeliest");

namespace coracle::tools {
namespace {

int RunGenerate(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one MODEL_DIR");
  GenerateOptions options;
  options.prompt = FLAGS_prompt;
  options.length = FLAGS_length;
  options.temperature = FLAGS_temperature;
  options.compile = CompileOptionsFromFlags();
  if (FLAGS_seed > 0) options.seed = FLAGS_seed;
  RequireOneProcess("generate", "`coracle run` runs a program on all of them");
  const CommandLimits limits(CommandLimits::Time::kRuns);
  PrintData(options.prompt + GenerateText(args[0], options) + "\n");
  return 0;
}

}  // namespace

Command GenerateCommand() {
  return {"generate",
          "writes new text with a character model that a job has trained",
          "generate MODEL_DIR [--prompt=TEXT] [--length=N] [--temperature=T] [--seed=S]",
          "  coracle generate output/shakespeare --prompt='ROMEO:' --length=300 --seed=7\n",
          WithCompileFlags({"prompt", "length", "temperature"}),
          RunGenerate};
}

}  // namespace coracle::tools
