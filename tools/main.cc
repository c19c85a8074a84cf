// The `coracle` command: the table of subcommands, and the code that they share.

#include <coracle/communication/communicator.h>
#include <coracle/convert/models.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/command_line.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/commands/help.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/print.h>
#include <coracle/tools/signals.h>
#include <coracle/train/log/format.h>
#include <fmt/format.h>
#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <new>
#include <thread>

namespace coracle::tools {
namespace {

constexpr int kFailed = 1, kWrongUsage = 2, kTrouble = 2;
int failure_code = kFailed;

void Complain(std::string_view text) {
  std::string line = Printable(fmt::format("coracle: {}", text));
  if (line.back() != '\n') line += '\n';
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// Prints an error's line. If there are several processes, the line names the rank. Other ranks
// wait, so that rank 0 reports an error common to all; its exit ends them.
void Fail(std::string_view text) {
  const Launched launched = FindLaunched();
  if (launched.size == 1) return Complain(text);
  if (launched.rank > 0) std::this_thread::sleep_for(std::chrono::seconds(3));
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  Complain(fmt::format("rank {} ({}): {}", launched.rank, host, text));
}

// Prints the library's messages as messages of the command, unless they go to glog's files. If
// there are several processes, only the first prints.
void LogToStandardError(MessageLevel level, const std::string& message) {
  if (FindLaunched().rank > 0) return;
  if (level == MessageLevel::kWarning) {
    FLAGS_logtostderr ? Complain("warning: " + message) : (void)(LOG(WARNING) << message);
  } else {
    FLAGS_logtostderr ? Complain(message) : (void)(LOG(INFO) << message);
  }
}

void ApplyGlobalFlags(const Command& command) {
  const std::vector<int> threads = ThreadsFromFlag();
  if (threads.size() > 1 && command.name != "bench")
    throw UsageError("--threads takes one number, got " + Quote(FLAGS_threads));
  if (threads.size() == 1 && threads[0] > 0) SetNumThreads(threads[0]);
  for (const std::string& path : Split(FLAGS_op_library, ',')) {
    if (!path.empty()) LoadOpLibrary(path, DefaultOps());
  }
}

int Main(std::vector<std::string> words) {
  // Global flags may come before the command.
  std::vector<std::string> before;
  while (!words.empty() && words.front().size() > 1 && words.front()[0] == '-') {
    const bool takes_next = words.size() > 1 && NeedsValue(words.front());
    const auto end = words.begin() + (takes_next ? 2 : 1);
    before.insert(before.end(), words.begin(), end);
    words.erase(words.begin(), end);
  }
  const bool asked = std::find(before.begin(), before.end(), "--version") != before.end();
  if (asked) return VersionCommand().run({}, {});
  if (ParseFlags(before, nullptr).help) {
    Print(Overview());
    return 0;
  }
  if (words.empty()) {
    Fail("a command is missing");
    std::fputs(Overview().c_str(), stderr);
    return kWrongUsage;
  }
  const Command& command = RequireCommand(words.front());
  words.erase(words.begin());
  const ParsedLine line = ParseFlags(words, &command);
  if (line.help) {
    Print(HelpOf(command));
    return 0;
  }
  ApplyGlobalFlags(command);
  if (!command.replaced_by.empty())
    LogMessage(MessageLevel::kInfo,
               fmt::format("{} is an old name, which the next version drops: use `coracle {}`",
                           command.name, command.replaced_by));
  try {
    return command.run(line.args, line.given);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}\nusage: coracle {}", command.name, PrintableLine(e.what()),
                                 command.usage));
  }
}

}  // namespace

void RequireArgs(const std::vector<std::string>& args, size_t least, size_t most,
                 const std::string& what) {
  if (args.size() < least || args.size() > most)
    throw UsageError(fmt::format("takes {}, got {}", what, Counted(args.size(), "argument")));
}

Command MakeCommand(CommandText text, int (*run)(const Args& args)) {
  return {std::move(text), std::make_shared<const FieldTable>(),
          [run](const Args& args, const GivenFlags&) { return run(args); }};
}

const std::vector<Command>& Commands() {
  // One line for each command, sorted by name.
  // clang-format off
  static const std::vector<Command> commands = {
      BackwardCommand(),
      BenchCommand(),
      BuildCommand(),
      CheckCommand(),
      CheckGradCommand(),
      CompareCommand(),
      CompletionCommand(),
      ConvertCommand(),
      DiffCommand(),
      DistributeCommand(),
      DumpCommand(),
      ExplainGradientCommand(),
      ExtractCommand(),
      GenerateCommand(),
      GraphCommand(),
      HelpCommand(),
      JoinParamsCommand(),
      LayersCommand(),
      MergeCommand(),
      OpsCommand(),
      OptCommand(),
      PassesCommand(),
      PlotCommand(),
      PredictCommand(),
      QuantizeCommand(),
      RenameCommand(),
      ReportCommand(),
      RunCommand(),
      RunsCommand(),
      SchemaCommand(),
      ServeCommand(),
      SetShapeCommand(),
      SnapshotCommand(),
      SplitParamsCommand(),
      SummaryCommand(),
      SweepCommand(),
      TestCommand(),
      TimeCommand(),
      TrainCommand(),
      VersionCommand(),
      ViewCommand(),
  };
  // clang-format on
  return commands;
}

std::vector<Command> ListedCommands() {
  std::vector<Command> listed = Commands();
  std::erase_if(listed, [](const Command& command) { return !command.replaced_by.empty(); });
  return listed;
}

void SetUp(const char* program) {
  HandleSignals();
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(program);
  SetLogSink(LogToStandardError);
  RegisterOnnxReader();
  RegisterPirReader();
}

void FailAsTrouble() { failure_code = kTrouble; }

int FailureCode() { return failure_code; }

int RunCommandLine(const std::vector<std::string>& words) {
  failure_code = kFailed;
  try {
    const int code = Main(words);
    Flush();
    return code;
  } catch (const UsageError& e) {
    Fail(e.what());
    return kWrongUsage;
  } catch (const Error& e) {
    if (IsOfGoneReader(e)) return 0;
    Fail(e.what());
  } catch (const std::bad_alloc&) {
    Fail(fmt::format("out of memory: `coracle {}` used up to {}", PrintableLine(Join(words, " ")),
                     HumanBytes(PeakMemory())));
  } catch (const std::exception& e) {
    Fail(e.what());
  } catch (...) {
    Fail("an unknown exception");
  }
  return failure_code;
}

}  // namespace coracle::tools
