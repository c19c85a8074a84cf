#pragma once
// Shows a program as one web page: the graph, and all facts about each op and variable.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// A program to show. Objects that it refers to must outlive the call.
struct PageProgram {
  std::string name;       // its name on the page
  std::string what = "";  // one line below the name: "training program of a job"
  const ProgramDesc& program;
  const Scope* values = nullptr;  // for statistics and histograms; nullptr: unavailable
  // The variable whose gradient the page explains; "": the output of the op with role Loss.
  std::string loss = "";
  // Measured times in Chrome's trace event format, as --trace=FILE writes it; "": none.
  std::string trace = "", trace_source = "";
};

struct PageOptions {
  std::string title = "";
  bool plan_memory = true;  // compile and plan each program, to show its memory over time
};

// The page: HTML that contains everything it needs, for any browser of 2023 or later. It loads
// nothing and runs only its own script, whatever texts the programs contain. For two programs, it
// also shows the difference. The page notes what cannot be computed for a program, such as the
// memory of a program that does not compile. Throws kNotFound for a loss that the program does not
// have, kDataLoss for an invalid trace, and kInvalidArgument for a trace of other programs and for
// no program or more than two.
std::string ProgramPage(const std::vector<PageProgram>& programs, const OpRegistry& ops,
                        const PageOptions& options = {});

}  // namespace coracle::inline internal
