#pragma once
// Writes the ops of a parsed program of Paddle 3 into a ProgramDesc.

#include <coracle/convert/pir/in_place.h>
#include <coracle/convert/pir/model_json.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/writer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle::pir {

// A constant of the file. It becomes a variable only if an op reads it as a tensor.
struct Constant {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::optional<double> fill;     // of all elements; else: integers
  std::optional<int64_t> exact;   // `fill` of an integer type, with all its digits
  std::vector<int64_t> integers;  // the elements
};

struct Value;
using ValuePtr = std::shared_ptr<Value>;

struct Value {
  Type type = {};
  BlockDesc* block = nullptr;  // the block that it belongs to
  std::string var = "";        // "" for a list, and for a constant that no op has read yet
  std::optional<Constant> constant = {};
  std::vector<ValuePtr> items = {};  // of a list
};

// An output slot of the op to append, with the results that it gives.
struct OutSlot {
  std::string name;
  size_t result = 0;         // its index among the op's results
  std::string same_as = "";  // the variable of this name, which the op updates in place
};

class ProgramBuilder {
 public:
  ProgramBuilder(const OpRegistry& ops, const std::string& source);

  // The program with its feed and fetch ops.
  ProgramDesc Build(const Block& block);

  Writer& writer() { return writer_; }
  ProgramDesc& program() { return program_; }
  const OpRegistry& ops() const { return ops_; }

  // --- for one op ---
  // Throws kUnimplemented with the op's name and place.
  [[noreturn]] void Refuse(const Op& op, const std::string& why) const;
  // The value of an operand; nullptr if it is absent. Throws kDataLoss for an id that no op before
  // this one defines.
  ValuePtr Operand(const Op& op, size_t i) const;
  // The variable of a tensor; of a list, those of its items.
  std::string VarOf(const Op& op, const ValuePtr& value);
  std::vector<std::string> VarsOf(const Op& op, const ValuePtr& value);
  // Counts elements of a list or constant that an op gets a copy of. A file of n bytes could ask
  // for n * n of them.
  void CountCopies(const Op& op, size_t count);
  // Makes the result another name of `value`.
  void Define(const Op& op, const Result& result, ValuePtr value);
  // Declares a variable of the result's type in the current block.
  VarDesc& Declare(const Op& op, size_t result);
  // A variable of the root block that has its name from the file. Throws kDataLoss for a name that
  // is in use.
  VarDesc& AddNamed(const Op& op, const std::string& name);
  // A variable of the current block under a new name, which begins with `hint`.
  VarDesc& DeclareNew(const std::string& hint);
  // Appends an op that gives results of `op`. Their types become those of the file where the shape
  // rule leaves dims open; a type that contradicts the file is refused.
  void Append(const Op& op, std::string type, SlotList inputs, const std::vector<OutSlot>& outputs,
              AttrList attrs = {});

  // Appends the ops of a block to the current block, and returns the operands of its last op if
  // that is a yield.
  std::vector<ValuePtr> ReadOps(const Block& block);
  void DefineArgument(const Op& op, const Result& argument, ValuePtr value);

 private:
  void ReadOp(const Op& op);
  void AddParameter(const Op& op);
  void AddInput(const Op& op);
  void AddOutput(const Op& op);
  void NameFetches(const Block& block);
  std::string NewName(const Op& op, const Result& result, size_t i);
  std::string FreeName(const std::string& name);
  std::string UniqueName(const std::string& hint);
  void Materialize(Value& value);
  void WriteBack(const Op& op, const InPlace& pair);
  bool IsShared(int64_t id) const { return in_place_ && in_place_->Shared(id); }
  void Settle(const Op& op, const std::string& name, const Type& type);
  void FitRank(const Op& op, const std::string& name, const Shape& shape);
  void FitDType(const Op& op, const std::string& name, DType dtype);
  std::string MoveAside(const std::string& name);
  std::string PlaceOf(const Op& op) const;

  const OpRegistry& ops_;
  std::string source_;
  ProgramDesc program_;
  Writer writer_;
  std::optional<InPlacePlan> in_place_;
  size_t copies_ = 0;
  std::unordered_map<int64_t, ValuePtr> values_;
  std::unordered_map<int64_t, std::string> fetch_names_;  // of values that are fetched
  // Of all blocks. A look-up in each block would take quadratic time.
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, int64_t> counters_;
  std::vector<std::string> feeds_;
  std::vector<std::pair<int64_t, std::string>> fetches_;  // (column, variable)
  std::unordered_map<const Op*, size_t> numbers_;
};

}  // namespace coracle::pir
