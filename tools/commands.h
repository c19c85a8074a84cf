#pragma once
// The subcommands; each is in the file of its name.

#include <coracle/tools/command.h>

namespace coracle::tools {

Command BackwardCommand();
Command BenchCommand();
Command BuildCommand();
Command CheckCommand();
Command CheckGradCommand();
Command CompareCommand();
Command CompletionCommand();
Command ConvertCommand();
Command DiffCommand();
Command DistributeCommand();
Command DumpCommand();
Command ExplainGradientCommand();
Command ExtractCommand();
Command GenerateCommand();
Command GraphCommand();
Command HelpCommand();
Command JoinParamsCommand();
Command LayersCommand();
Command MergeCommand();
Command OpsCommand();
Command OptCommand();
Command PassesCommand();
Command PlotCommand();
Command PredictCommand();
Command QuantizeCommand();
Command RenameCommand();
Command ReportCommand();
Command RunCommand();
Command RunsCommand();
Command SchemaCommand();
Command ServeCommand();
Command SetShapeCommand();
Command SnapshotCommand();
Command SplitParamsCommand();
Command SummaryCommand();
Command SweepCommand();
Command TestCommand();
Command TimeCommand();
Command TrainCommand();
Command VersionCommand();
Command ViewCommand();

}  // namespace coracle::tools
