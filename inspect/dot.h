#pragma once
// Draws a program as a graph in DOT, the language of Graphviz: ops are boxes, variables are the
// edges between them.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/op_registry.h>

#include <cstddef>
#include <string>
#include <vector>

namespace coracle {

struct DotOptions {
  int block = -1;                          // only this block; -1: all
  std::vector<TrainingStage> stages = {};  // only ops of these stages; empty: all
  // Only ops near this variable; "": everything. Depth 1 shows the ops that write or read it, depth
  // 2 also the ops that write or read a variable of these, and so on. Does not continue through
  // parameters and other persistable variables.
  std::string around = {};
  int depth = 2;
};

// A box shows the op's type, its layer, and the parameters that it reads; its colour shows the
// stage. Edges show the names and shapes of their variables. If there are many long edges, as from
// forward to backward ops of a large training step, the box of the writing op shows them instead,
// because Graphviz would need hours for the labels. Ellipses are inputs and results; a dashed
// ellipse is a variable of an op that the options exclude. A sub-block is a frame around its ops; a
// dotted line connects the frame to the op that runs it. Linear in the size of the program except
// for the lookup of writers (log n); safe for unverified programs. Names are escaped, and long ones
// cut. Throws kNotFound for a block or variable that the program does not have.
std::string ProgramDot(const ProgramDesc& program, const OpRegistry& ops,
                       const DotOptions& options = {});

// The number of ops that ProgramDot shows. Graphviz needs much longer for twice as many.
size_t OpsInDot(const ProgramDesc& program, const DotOptions& options = {});

// The stage of that name; "_" or "-" may replace blanks. Throws kNotFound for other names.
TrainingStage StageFromText(const std::string& name);

}  // namespace coracle
