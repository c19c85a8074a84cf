#pragma once
// The cases of OpTest as files, for checks by others (test/convert/peer).

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/interpreter.h>

namespace coracle {

// Where $CORACLE_OP_CASES names a directory: makes a folder in it with the program (program.pb),
// and its inputs (in_<i>.npy, names in inputs.txt) and results (want_<i>.npy, wanted.txt). Values
// other than tensors without LoD are left out, with the whole case.
void WriteOpCase(const ProgramDesc& program, const VarValues& inputs, const VarValues& results);

}  // namespace coracle
