#pragma once
// The subcommands, each in the file of its name.

#include "command.h"

namespace coracle::tools {

Command BackwardCommand();
Command BuildCommand();
Command CheckCommand();
Command CheckGradCommand();
Command ConvertCommand();
Command DumpCommand();
Command ExplainGradientCommand();
Command GenerateCommand();
Command HelpCommand();  // in main.cc
Command OpsCommand();
Command PassesCommand();
Command PlotCommand();
Command RunCommand();
Command SchemaCommand();
Command SnapshotCommand();
Command SummaryCommand();
Command TestCommand();
Command TimeCommand();
Command TrainCommand();
Command VersionCommand();

}  // namespace coracle::tools
