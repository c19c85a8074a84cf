#pragma once
// Writes a program as JSON text of Paddle 3: the way back from program_builder.h.

#include <coracle/convert/pir/json_text.h>
#include <coracle/convert/pir/op_reader.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle::pir {

class ProgramWriter {
 public:
  ProgramWriter(ProgramDesc program, const OpRegistry& ops);

  // The text of the program.
  std::string Run();
  // The parameters in the text, sorted by name: the order of the parameter file. Call it after Run.
  const std::set<std::string>& parameters() const { return parameters_; }

  const OpRegistry& ops() const { return ops_; }

  // --- for one op ---
  // Throws kUnimplemented with the op's type and place.
  [[noreturn]] void Refuse(const OpDesc& op, const std::string& why) const;
  // The value of an input slot; 0 if it is absent. A slot of several variables gives a list.
  int64_t Operand(const OpDesc& op, const char* slot);
  // A constant that the op reads: numbers in a vector, or one number of a type.
  int64_t Numbers(const OpDesc& op, const std::vector<int64_t>& values);
  int64_t Number(const OpDesc& op, DType dtype, double value);
  // An integer as the number of a constant; refuses the op if no double holds it exactly.
  double ExactNumber(const OpDesc& op, int64_t value) const;
  // The value of this type with `ones` more dims of 1 after its own.
  int64_t Reshaped(const OpDesc& op, int64_t value, const Type& type, int ones);
  // The attr of the op, or its default; throws if it has neither.
  Attribute AttrOf(const OpDesc& op, const std::string& name) const;
  template <class T>
  T Get(const OpDesc& op, const std::string& name) const {
    return AttributeAs<T>(AttrOf(op, name));
  }
  Type TypeOfSlot(const OpDesc& op, const char* slot) const;  // the type of the first variable
  // The type of the result of this slot that Paddle's op gives.
  Type ResultType(const OpDesc& op, const char* slot) const;

  // Writes the op `name` of the dialect, whose results are the variables of these slots ("_": none;
  // "": a result that the program lacks). Adds the name of the op's layer.
  void Emit(const OpDesc& op, const std::string& name, std::vector<int64_t> operands,
            const std::vector<std::string>& slots, std::vector<Json> attrs);

 private:
  // A variable that several ops of a ProgramDesc make and one op of Paddle 3 gives.
  struct Merged {
    std::string var;
    size_t ops = 0;  // that follow, and are not written themselves
  };

  void ReserveIds();
  void FindPersistables();
  void FindMerged();
  std::string AfterRaw(size_t op, const std::string& name, size_t* ops) const;
  void AddParameters();
  void AddInputs();
  void AddOutputs();
  void WriteOp(const OpDesc& op);
  void CheckFetch(const OpDesc& fetch) const;
  void CheckChange(const OpDesc& op, const std::string& name, bool in_place) const;
  int64_t ValueOf(const OpDesc& op, const std::string& name);
  int64_t Combined(const OpDesc& op, const std::vector<std::string>& names);
  int64_t NewId();
  int64_t FirstId(const std::string& name, const std::vector<std::string>& vars);
  Result ResultOf(const OpDesc& op, const std::string& slot, int64_t id,
                  std::vector<std::string>* vars);
  void Define(const OpDesc& op, const std::string& var, Result result);
  void Reshape(const OpDesc& op, const Result& from, const std::string& var);
  void SetParameter(const OpDesc& op, const Result& from, const std::string& name);
  void Write(const WrittenOp& op);
  Type TypeOf(const OpDesc& op, const std::string& var) const;
  std::string FinalName(const std::string& var) const;

  const ProgramDesc program_;
  const BlockDesc& root_;
  const OpRegistry& ops_;
  std::string text_;  // the ops so far
  int64_t next_id_ = 1;
  std::unordered_set<int64_t> reserved_, used_;
  std::unordered_map<std::string, Result> values_;  // by variable, up to the current op
  std::unordered_set<std::string> set_;             // persistable variables that ops set
  std::set<std::string> parameters_;                // the others
  std::unordered_map<std::string, Merged> merged_;  // by the first variable
  size_t skipped_ = 0;                              // ops to skip
};

// Whether the op has a function of its own, which writes it.
bool WriteSpecial(ProgramWriter& writer, const OpDesc& op);
// Writes the op by a row; false if no row has all its operands, results and attributes. Then
// *why says what is missing in the row that the attributes and operands choose.
bool WriteByRow(ProgramWriter& writer, const OpDesc& op, std::string* why);
// Whether Paddle 3 gives rank 0 where the op gives the shape [1] in this slot.
bool GivesRank0(const ProgramWriter& writer, const OpDesc& op, const std::string& slot);

}  // namespace coracle::pir
