#pragma once
// A program as one page for a browser: the graph, and what is known of each op and variable.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>
#include <vector>

namespace coracle {

// A program to be shown. What is referred to must outlive the call.
struct PageProgram {
  std::string name;       // what the page calls it
  std::string what = "";  // one line below the name: "training program of a job"
  const ProgramDesc& program;
  const Scope* values = nullptr;  // for statistics and histograms; nullptr: none are at hand
  // Of the variable whose gradient the page explains; "": the output of the op with role Loss.
  std::string loss = "";
  // Chrome's trace event format, as --trace=FILE writes it, for measured times; "": none.
  std::string trace = "", trace_source = "";
};

struct PageOptions {
  std::string title = "";
  bool plan_memory = true;  // compile and plan each program, to show its memory over time
};

// The page: HTML with all that it needs inside, for any browser of 2023 or later. It loads nothing
// and runs no script but its own, whatever texts the programs hold. Of two programs it also shows
// the difference. What cannot be found out about a program (its memory, where it does not compile)
// is noted on the page. Throws kNotFound for a loss that the program does not have, kDataLoss for
// a trace that is none, kInvalidArgument for a trace of other programs, and for more than two
// programs or none.
std::string ProgramPage(const std::vector<PageProgram>& programs, const OpRegistry& ops,
                        const PageOptions& options = {});

}  // namespace coracle
