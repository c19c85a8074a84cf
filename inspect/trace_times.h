#pragma once
// Assigns the times of a trace (`--trace=FILE` of run, bench and train) to the ops of a program.

#include <coracle/framework/ir/program.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

struct TracedOp {
  int block = 0;
  size_t op = 0;
  double seconds = 0;  // in all runs of the trace, without the time of ops in its sub-block
  uint64_t runs = 0;
};

struct TraceTimes {
  std::vector<TracedOp> ops;  // in the order of the program
  double seconds = 0;         // time of all ops of the trace
  // Time of ops whose result no op of the program writes, or several without a certain one.
  double without_op = 0;
};

// `text`: Chrome's trace event format. A span of an op belongs to the program's op that writes the
// span's output, of the same type where there is one: a trace has the ops of compiled programs,
// where passes have fused some. Where several such ops write it, the span's place says which: the
// place in the text ("from net.pbtxt:3:9"), or else the order of all of them in the traced program.
// A span's `ops`, by block and number, are the ops that passes fused into its op. If they have one
// type, each gets time in proportion to the elements that it writes. Otherwise the op that writes
// the result gets all. Older traces have no `ops`; in these, the time of a variable that
// several ops write goes into without_op. Spans of a startup program belong to none of another
// program's ops. Throws kDataLoss for what is no such trace; `source` names it in errors.
TraceTimes ReadTraceTimes(const std::string& text, const std::string& source,
                          const ProgramDesc& program);

}  // namespace coracle::inline internal
