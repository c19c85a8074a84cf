#pragma once
// What must hold of a program before backward looks at it, in the verifier's words.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

namespace coracle::internal {

// How blocks are nested: without it look-ups and walks need not end. Costs nothing for a program
// of one block.
void RequireBlocks(const ProgramDesc& program, const OpRegistry& ops);

// The slots, attrs and sub-blocks of one op of a known type. REQUIRES: RequireBlocks.
void RequireOp(const OpDesc& op, const OpRegistry& ops);
// Some block that the op sees declares each of its variables.
void RequireDeclared(const OpDesc& op);

// The whole program, but for ops of unknown types: a gradient may not need them. Linear
// in its size.
void RequireProgram(const ProgramDesc& program, const OpRegistry& ops);

// All of it, on a program that is given open types (open_types.h) in between.
void SettleProgram(ProgramDesc& program, const OpRegistry& ops);

// Replaces the calls whose gradient is derived by their ops, for a second derivative. A program
// that is wrong is refused first, and stays as it was.
void ReplaceCalls(ProgramDesc& program, const OpRegistry& ops);

// The block where a variable gets its value: a handle may have been looked up from a sub-block,
// which may write a variable of a block around it.
BlockDesc& BlockOf(const Variable& variable);

}  // namespace coracle::internal
