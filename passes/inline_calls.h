#pragma once
// InlineCalls: replaces each `call`, and the gradients of calls, by the ops of its block.

#include <coracle/framework/ir/program.h>

namespace coracle {

// Afterwards the program has no op `call` or `call_grad`; the blocks of functions stay, and no op
// names them. The variables of a call are those of its block, with a prefix of its own; the blocks
// that the function's ops run (loops, branches) are copied for each call, and then stand before all
// gradient blocks. Values, names of arguments and results, and the order of all other ops stay.
// Handles on variables of sub-blocks are not valid afterwards.
// Throws kInvalidArgument for a function that calls itself. REQUIRES: blocks whose parents and
// forward blocks are blocks (Verify). Returns whether there was a call.
bool InlineCalls(ProgramDesc& program);

// The same, but for calls whose gradient is given (by gradient_block or gradient_function): their
// blocks are not what they are differentiated by.
bool InlineDerivedCalls(ProgramDesc& program);

}  // namespace coracle
