#pragma once
// How the ops of Paddle 3 become ops of a ProgramDesc: most by a row, some by a function.

#include <coracle/convert/pir/program_builder.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace coracle::pir {

// A row: an op of the dialect pd_op and its counterpart. The ops have the same operands in the same
// order; most attributes have the same names.
struct Row {
  const char* name;
  const char* type;
  // For each operand: the slot; "_" if it does not matter; "=NAME>ATTR:SLOT:LIST" if it is the attr
  // ATTR of the ProgramDesc (">ATTR" is left out if the names are equal). In some files NAME is an
  // attribute and not an operand. A tensor that is no constant goes to SLOT, a list of tensors to
  // LIST; without a slot, the operand must be a constant.
  const char* inputs;
  // For each result: the slot, "_" if the result is not computed, "SLOT=INPUT" if the op updates
  // its input in place.
  const char* outputs;
  // "NAME>ATTR" renames, "!NAME" leaves out, "NAME==VALUE" requires a value and leaves out,
  // "+ATTR=VALUE" adds, "~" lets int64 bounds saturate at int32.
  const char* attrs = "";
};

// nullptr for an unknown op.
const Row* FindRow(std::string_view name);
const std::vector<Row>& AllRows();
void ReadRow(ProgramBuilder& builder, const Op& op, const Row& row);

// Reads an op by its own function; false if it has none.
bool ReadSpecial(ProgramBuilder& builder, const Op& op);
// The names of these ops: "pd_op.full".
std::vector<std::string> SpecialOps();

// Constants of Paddle 3 are doubles, which hold all integers from -kMostExact to kMostExact.
inline constexpr int64_t kMostExact = int64_t{1} << 53;

// The elements of a constant or of a list of constants, if they are known and few.
std::optional<std::vector<int64_t>> KnownIntegers(ProgramBuilder& builder, const Op& op,
                                                  const ValuePtr& value);
std::optional<double> KnownNumber(const ValuePtr& value);
// The attr of `op` as the type that the counterpart declares. With `saturate`, an int64 beyond
// int32 becomes the nearest int32.
Attribute ConvertTo(const ProgramBuilder& builder, const Op& op, const std::string& name,
                    const Attribute& value, AttrType type, bool saturate = false);

// Ops that are composed of simpler ones.
void ReadEinsum(ProgramBuilder& builder, const Op& op);
void ReadIndexPut(ProgramBuilder& builder, const Op& op);
void ReadLerp(ProgramBuilder& builder, const Op& op);
void ReadPutAlongAxis(ProgramBuilder& builder, const Op& op);
void ReadRepeatInterleave(ProgramBuilder& builder, const Op& op);
void ReadSwiglu(ProgramBuilder& builder, const Op& op);
void ReadTakeAlongAxis(ProgramBuilder& builder, const Op& op);

// Blocks: if and while.
void ReadIf(ProgramBuilder& builder, const Op& op);
void ReadWhile(ProgramBuilder& builder, const Op& op);

}  // namespace coracle::pir
