#pragma once
// Assigns the times of a trace (`--trace=FILE` of run, bench and train) to the ops of a program.

#include <coracle/framework/ir/program.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

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

// `text` is in Chrome's trace event format. The time of a span belongs to the program's op that
// writes the span's output, preferably one of the same type: a trace has the ops of compiled
// programs, in which passes have fused some. If several such ops write the output, the span's place
// selects one: by the place in the text ("from net.pbtxt:3:9"), or else by the order of all of them
// in the traced program. If passes merged ops of one type (listed in the span's `ops`, by block and
// number), each gets time in proportion to the elements that it writes; the time of other fused ops
// belongs to the op that writes the result. Spans of a startup program do not belong to ops of
// another program. Throws kDataLoss for any other text; `source` names it in errors.
TraceTimes ReadTraceTimes(const std::string& text, const std::string& source,
                          const ProgramDesc& program);

}  // namespace coracle
