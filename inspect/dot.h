#pragma once
// A program as a graph in DOT, the language of Graphviz: ops are boxes, variables the edges between
// them.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/op_registry.h>

#include <cstddef>
#include <string>
#include <vector>

namespace coracle {

struct DotOptions {
  int block = -1;                          // only this one; -1: all
  std::vector<TrainingStage> stages = {};  // only ops of these; empty: of all
  // Only what is near this variable; "": everything. At depth 1 the ops that write or read it, at
  // depth 2 those that write or read a variable of these too, and so on; parameters and other
  // persistable variables lead nowhere.
  std::string around = {};
  int depth = 2;
};

// A box shows the op's type, its layer, and the parameters that it reads; its colour tells the
// stage. Edges have the names and shapes of their variables; where edges are many and long, as from
// forward to backward ops of a large training step, these stand in the box of the op that writes
// them, since Graphviz would take hours for the labels. Ellipses are what is fed and what results;
// a dashed one is a variable of an op that the options leave out. A sub-block is a frame around its
// ops, which a dotted line joins to the op that runs it. Linear in the size of the program but for
// looking up writers (log n); safe on programs that were never verified. Names are escaped, long
// ones cut. Throws kNotFound for a block or variable that the program does not have.
std::string ProgramDot(const ProgramDesc& program, const OpRegistry& ops,
                       const DotOptions& options = {});

// How many ops ProgramDot would show: Graphviz takes much longer for twice as many.
size_t OpsInDot(const ProgramDesc& program, const DotOptions& options = {});

// The stage of that name; blanks may be "_" or "-". Throws kNotFound for any other name.
TrainingStage StageFromText(const std::string& name);

}  // namespace coracle
