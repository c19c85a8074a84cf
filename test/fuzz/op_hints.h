#pragma once
// Facts about ops that the program generator cannot find at random: shapes that fit together, and
// attrs that fit the shapes. They are one table, in op_hint_table.cc; an op without a line there is
// drawn from its declaration alone (SlotFromDoc).

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/test/fuzz/choices.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// Variables that a program reads before it writes them.
struct ProgramInput {
  std::string name;
  VarMeta meta;           // its shape is exact
  double limit = 0;       // integers are below it; 0: any small ones
  bool positive = false;  // numbers between 0.5 and 1.5
  bool persistable = false;
  bool constant = false;  // read where no gradient flows
  LoD lod = {};
};

// An op being drawn: inputs chosen, attrs and outputs to come.
struct OpDraft {
  Choices& choose;
  const OpSpec& def;
  const BlockDesc& block;
  DType dtype = DType::kFloat32;  // of the operands
  SlotList inputs = {};
  AttrList attrs = {};
  std::map<std::string, int> outputs =
      {};                               // how many variables a slot gets; default: see generator
  std::vector<ProgramInput> made = {};  // inputs that do not exist yet
  std::map<char, int64_t> dims = {};
  std::vector<int64_t> rest = {};  // the dims that "..." stands for
  bool rest_bound = false;
  int* next_name = nullptr;

  const VarMeta* Find(const std::string& name) const;
  const Shape& ShapeOf(std::string_view slot, size_t i = 0) const;
  bool Has(std::string_view attr) const;
  void Set(std::string_view attr, Attribute value);
  std::string NewInput(DType type, const Shape& shape, double limit = 0);
};

// Slots: NAME with ? (may be left out) or * (one to three), then the kind of variable and its dims,
// "X:n[...,m,k]". Kinds: none floating-point, n of the op's dtype (numbers), a any dtype, +
// positive, i<LIMIT indices, c int32 counts, b bool, z complex, A array, R selected rows. Dims: a
// letter means one size throughout the op, ? any size, "..." the same dims in all slots; no
// brackets: any shape.
struct SlotHint {
  std::string name;
  bool optional = false, variadic = false, any_shape = true;
  char kind = 'f';
  std::string limit;              // a letter or a number
  std::vector<std::string> dims;  // without "..."
  int rest_at = -1;               // before which of them "..." stands; -1: nowhere
};

struct OpHint {
  const char* types;       // separated by spaces
  const char* slots;       // "": drawn from the declaration
  const char* attrs = "";  // "axis=-1|0 ksize=[2,2]|[3,3]"; a letter stands for a size
  void (*finish)(OpDraft& draft) = nullptr;
};

// Parsed.
struct Recipe {
  std::vector<SlotHint> slots;
  std::vector<std::pair<std::string, std::vector<std::string>>> attrs;
  void (*finish)(OpDraft& draft) = nullptr;
  bool smooth = false;  // outputs have derivatives of all orders wherever inputs lie as told
};

// The rows of the table (op_hint_table.cc): ops whose outputs have derivatives of all orders for
// inputs as described, and all others.
std::span<const OpHint> SmoothHints();
std::span<const OpHint> OtherHints();

// The recipes of an op; of those for smooth ones only, when asked. Empty: none.
const std::vector<Recipe>& RecipesFor(const std::string& type, bool smooth);
// The hint that a declared slot gives itself whose doc begins with its shape, of single letters and
// digits: "[N, C, ...]", "[C]; 1 when absent".
std::optional<SlotHint> SlotFromDoc(const SlotDef& slot);
// The types that have a smooth recipe.
const std::vector<std::string>& SmoothTypes();

// "2", "[1, k]", "max" as a value of that type.
Attribute ParseAttr(const std::string& text, AttrType type, const std::map<char, int64_t>& dims);

}  // namespace coracle
