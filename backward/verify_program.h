#pragma once
// Requirements on a program before backward examines it, with the verifier's errors.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

namespace coracle::inline internal {

// Requires properly nested blocks; otherwise look-ups and walks might not end. Free for a program
// with one block.
void RequireBlocks(const ProgramDesc& program, const OpRegistry& ops);

// Checks the slots, attrs and sub-blocks of one op of a known type. REQUIRES: RequireBlocks.
void RequireOp(const OpDesc& op, const OpRegistry& ops);
// Requires some block visible to the op to declare each of its variables.
void RequireDeclared(const OpDesc& op);

// Checks the whole program, except ops of unknown types, which a gradient may not need. Linear in
// its size.
void RequireProgram(const ProgramDesc& program, const OpRegistry& ops);

// Makes all these checks, and fills in open types (open_types.h) in between.
void CheckAndFillTypes(ProgramDesc& program, const OpRegistry& ops);

// Replaces calls whose gradient is derived by their ops, for a second derivative. Refuses an
// invalid program first and leaves it unchanged.
void ReplaceCalls(ProgramDesc& program, const OpRegistry& ops);

// The block where a variable gets its value: a handle may have been looked up from a sub-block that
// writes a variable of an enclosing block.
BlockDesc& BlockOf(const Variable& variable);

}  // namespace coracle::inline internal
