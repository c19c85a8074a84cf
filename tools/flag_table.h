#pragma once
// The flags of a command: a struct whose field table (framework/ir/fields.h) declares them once.
//
//   struct DumpFlags {
//     bool json = false;
//     int32_t block = -1;
//   };
//   Fields<DumpFlags>("")
//       .Add("json", &DumpFlags::json, "prints JSON")
//       .Add("block", &DumpFlags::block, "only block `N`; -1: all", LimitedRange(-1, INT32_MAX));
//
// A member is a bool, a number, text, an enum (OneOf), a list of texts (given as a,b), or a
// std::optional of one, which holds nothing unless the command line gives the flag. The word in
// backquotes in a doc is the placeholder of the value: "`FILE` to write" is shown as
// "--out=FILE  FILE to write". Flags of the whole process (--threads, ...) are gflags.

#include <coracle/framework/ir/fields.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle::tools {

// A member that is a list of texts, to which every use of the flag adds one. Its commas stay.
MemberType AppendedTexts();

// How help shows a flag.
struct FlagHelp {
  std::string name;
  std::string value;  // "=FILE"; "" for flags that take none
  std::string text;
};
FlagHelp HelpOf(const FieldSpec& flag);

// "must not be negative"; allows infinity.
FieldRange ZeroOrMore();

// Flags with the texts of their values, in the order of the command line.
using GivenFlags = std::vector<std::pair<std::string, std::string>>;

// Whether the flag is a bool: --name without a value is true, --noname is false.
bool IsSwitch(const FieldSpec& flag);

// Sets the members of `flags`, a struct of the table. Throws UsageError for a value of the wrong
// type or out of range.
void SetFlags(const FieldTable& table, const GivenFlags& given, void* flags);

// The word of a text for the value of an enum member: "reference".
const std::string& WordOf(const OneOf& words, int32_t value);

}  // namespace coracle::tools
