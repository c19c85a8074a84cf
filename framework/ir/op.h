#pragma once
// OpDesc: one op of a block, with its type, the variables in its slots, and its attrs in the given
// order. Before it: the values of attrs, Setting, and reserved names.

#include <coracle/framework/base/error.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace coracle {

// The types of attribute values, with the numbers of framework.proto; also the index of an
// Attribute's variant.
enum class AttrType : int32_t {
  kInt = 0,
  kFloat = 1,
  kString = 2,
  kInts = 3,
  kFloats = 4,
  kStrings = 5,
  kBoolean = 6,
  kBooleans = 7,
  kBlock = 8,
  kLong = 9,
  kBlocks = 10,
  kLongs = 11,
  kFloat64s = 12,
  kVar = 13,
  kVars = 14,
  kFloat64 = 15,
  kScalar = 16,
  kScalars = 17,
  kRaw = 18,  // not on the wire: an attr of a kind unknown to this version
};

const char* ToString(AttrType type);  // framework.proto's enumerator: "INT", "FLOATS", ...

struct BlockRef {  // index of a sub-block
  int32_t idx = 0;
  bool operator==(const BlockRef&) const = default;
};

struct VarRef {  // name of a variable
  std::string name;
  bool operator==(const VarRef&) const = default;
};

struct Complex {  // std::complex would add a fifth to the compile time of every file
  double real = 0, imag = 0;
  bool operator==(const Complex&) const = default;
};

struct Scalar {
  std::variant<bool, int64_t, double, Complex> value;
  bool operator==(const Scalar&) const = default;
};

struct RawAttr {  // the serialised OpDesc.Attr message, kept as it was read
  std::string bytes;
  bool operator==(const RawAttr&) const = default;
};

using AttributeVariant =
    std::variant<int32_t, float, std::string, std::vector<int32_t>, std::vector<float>,
                 std::vector<std::string>, bool, std::vector<bool>, BlockRef, int64_t,
                 std::vector<BlockRef>, std::vector<int64_t>, std::vector<double>, VarRef,
                 std::vector<VarRef>, double, Scalar, std::vector<Scalar>, RawAttr>;

// A variant whose copies and destructor are compiled in attribute.cc. Instantiating them in every
// file that uses attrs would take a good part of the build time.
class Attribute : public AttributeVariant {
 public:
  using AttributeVariant::AttributeVariant;
  Attribute();  // 0
  Attribute(const Attribute& other);
  Attribute(Attribute&& other) noexcept;
  Attribute& operator=(const Attribute& other);
  Attribute& operator=(Attribute&& other) noexcept;
  ~Attribute();
};

inline AttrType TypeOf(const Attribute& attribute) {
  return static_cast<AttrType>(attribute.index());
}

template <class T>
constexpr AttrType AttrTypeOf() {
  if constexpr (std::is_same_v<T, int32_t>)
    return AttrType::kInt;
  else if constexpr (std::is_same_v<T, float>)
    return AttrType::kFloat;
  else if constexpr (std::is_same_v<T, std::string>)
    return AttrType::kString;
  else if constexpr (std::is_same_v<T, std::vector<int32_t>>)
    return AttrType::kInts;
  else if constexpr (std::is_same_v<T, std::vector<float>>)
    return AttrType::kFloats;
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return AttrType::kStrings;
  else if constexpr (std::is_same_v<T, bool>)
    return AttrType::kBoolean;
  else if constexpr (std::is_same_v<T, std::vector<bool>>)
    return AttrType::kBooleans;
  else if constexpr (std::is_same_v<T, BlockRef>)
    return AttrType::kBlock;
  else if constexpr (std::is_same_v<T, int64_t>)
    return AttrType::kLong;
  else if constexpr (std::is_same_v<T, std::vector<BlockRef>>)
    return AttrType::kBlocks;
  else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    return AttrType::kLongs;
  else if constexpr (std::is_same_v<T, std::vector<double>>)
    return AttrType::kFloat64s;
  else if constexpr (std::is_same_v<T, VarRef>)
    return AttrType::kVar;
  else if constexpr (std::is_same_v<T, std::vector<VarRef>>)
    return AttrType::kVars;
  else if constexpr (std::is_same_v<T, double>)
    return AttrType::kFloat64;
  else if constexpr (std::is_same_v<T, Scalar>)
    return AttrType::kScalar;
  else if constexpr (std::is_same_v<T, std::vector<Scalar>>)
    return AttrType::kScalars;
  else
    static_assert(sizeof(T) == 0, "not an attribute type");
}

// Converts a value to another type if its meaning is kept: between integers (in range), between
// bool and the integers 0 and 1, between floats of any width, element by element for lists, from
// one number to a list of one, from an empty list to any empty list, and from a float to its
// text. Returns false, and leaves *out unchanged, if no such conversion exists. Different
// versions of Paddle write the same attr with different types, so attrs are converted on access,
// never on reading.
bool ConvertAttribute(const Attribute& from, AttrType to, Attribute* out);

// The attribute as T, converted as above; throws kInvalidArgument naming both types.
template <class T>
T AttributeAs(const Attribute& attribute) {
  if (const T* same = std::get_if<T>(&attribute)) return *same;
  Attribute converted;
  if (!ConvertAttribute(attribute, AttrTypeOf<T>(), &converted)) {
    ThrowInvalid(std::string("an attr of type ") + ToString(TypeOf(attribute)) + " was read as " +
                 ToString(AttrTypeOf<T>()));
  }
  return std::get<T>(std::move(converted));
}

// The value as a dump shows it: 0.5, "SAME", [1, 2], block 1.
std::string ToString(const Attribute& attribute);

struct NamedAttr {
  std::string name;
  Attribute value;
  bool operator==(const NamedAttr&) const = default;
};

// A kind with its parameters: the form in which a program keeps initializers, regularizers
// and clips.
struct Setting {
  std::string kind;  // "xavier", "l2_decay", "by_value", ...
  std::vector<NamedAttr> attrs;

  const Attribute* Find(const std::string& name) const;
  template <class T>
  T Get(const std::string& name, T otherwise) const {
    const Attribute* found = Find(name);
    return found ? AttributeAs<T>(*found) : otherwise;
  }
  bool operator==(const Setting&) const = default;
};

// --- reserved names and numbers that Paddle's programs agree on ---

// Means "no variable here" in a slot of a gradient op.
inline constexpr std::string_view kEmptyVarName = "@EMPTY@";
inline constexpr std::string_view kGradSuffix = "@GRAD";

inline std::string GradName(std::string_view name) {
  return std::string(name) + std::string(kGradSuffix);
}
inline bool IsEmptyName(std::string_view name) { return name.empty() || name == kEmptyVarName; }

// Attrs that every op may carry.
inline constexpr const char* kOpRoleAttr = "op_role";
inline constexpr const char* kOpRoleVarAttr = "op_role_var";
inline constexpr const char* kOpNamescopeAttr = "op_namescope";
// STRINGS: Coracle writes "file:line:column", and a line for the round.
inline constexpr const char* kOpCallstackAttr = "op_callstack";
inline constexpr const char* kOpDeviceAttr = "op_device";
// STRING on a gradient op that names its forward op; see FindForwardOp.
inline constexpr const char* kForwardOpAttr = "forward_op";
// Whether the attr does not affect what the op computes: one of the attrs above, a mark of a
// training step (framework/ir/training_stage.h), or the compiler's op_origin.
bool IsBookkeepingAttr(std::string_view name);

// Values of op_role; they combine by |.
enum OpRole : int {
  kForward = 0x0000,
  kBackward = 0x0001,
  kOptimize = 0x0002,
  kRpc = 0x0004,
  kDist = 0x0008,
  kLRSched = 0x0010,
  kLoss = 0x0100,
  kNotSpecified = 0x1000,
};

class BlockDesc;
inline namespace internal {
struct EditJournal;
struct FileFields;
}  // namespace internal

// A named input or output of an op with the names of its variables.
struct Slot {
  std::string name;
  std::vector<std::string> args;
  bool operator==(const Slot&) const = default;
};
using SlotList = std::vector<Slot>;
using AttrList = std::vector<NamedAttr>;

inline namespace internal {

// Calls f with as many of name, slot and index as it takes.
template <class F>
decltype(auto) CallWithPlace(F& f, const std::string& name, const std::string& slot, size_t index) {
  if constexpr (std::is_invocable_v<F&, const std::string&>)
    return f(name);
  else if constexpr (std::is_invocable_v<F&, const std::string&, const std::string&>)
    return f(name, slot);
  else
    return f(name, slot, index);
}

}  // namespace internal

// Like OpDesc::ForEachInput, but also calls f for positions without a variable, as needed for lists
// with one entry per position.
template <class F>
void ForEachPosition(const SlotList& slots, F&& f) {
  for (const Slot& slot : slots) {
    for (size_t i = 0; i < slot.args.size(); ++i)
      internal::CallWithPlace(f, slot.args[i], slot.name, i);
  }
}

class OpDesc {
 public:
  OpDesc() = default;
  explicit OpDesc(std::string type, SlotList inputs = {}, SlotList outputs = {},
                  AttrList attrs = {});
  OpDesc(const OpDesc& other);  // the copy belongs to no block
  OpDesc& operator=(const OpDesc&) = delete;

  const std::string& type() const { return type_; }
  void SetType(std::string type);

  const SlotList& inputs() const { return inputs_; }
  const SlotList& outputs() const { return outputs_; }
  // The variables in a slot; an empty list when the slot is absent.
  const std::vector<std::string>& Input(std::string_view slot) const;
  const std::vector<std::string>& Output(std::string_view slot) const;
  bool HasInput(std::string_view slot) const;  // present, with at least one variable
  bool HasOutput(std::string_view slot) const;
  // Replace the variables of the slot, which keeps its place; a new slot goes to the end.
  void SetInput(std::string_view slot, std::vector<std::string> args);
  void SetOutput(std::string_view slot, std::vector<std::string> args);
  void RemoveInput(std::string_view slot);
  void RemoveOutput(std::string_view slot);
  // Replace a variable wherever the op reads (writes) it.
  void RenameInput(const std::string& from, const std::string& to);
  void RenameOutput(const std::string& from, const std::string& to);

  // Calls f(name, slot, index) for each variable that the op reads (writes), slot after slot;
  // `index` is its position in the slot. f may take only the name, or the name and the slot.
  // Positions without a variable (IsEmptyName) are skipped. f must not edit the slots.
  template <class F>
  void ForEachInput(F&& f) const {
    AnyName(inputs_, CallAndGoOn(f));
  }
  template <class F>
  void ForEachOutput(F&& f) const {
    AnyName(outputs_, CallAndGoOn(f));
  }
  // Whether `holds` returns true for one of these variables; stops at the first. `holds` takes the
  // same arguments as f above.
  template <class Predicate>
  bool AnyInput(Predicate&& holds) const {
    return AnyName(inputs_, holds);
  }
  template <class Predicate>
  bool AnyOutput(Predicate&& holds) const {
    return AnyName(outputs_, holds);
  }
  std::string FirstOutput() const;  // "" if it writes no variable
  bool Reads(std::string_view name) const;
  bool Writes(std::string_view name) const;
  // Replaces each of these variables by the name that `rename` returns. `rename` takes the same
  // arguments as f above, and must not look up uses in the op's block.
  template <class Rename>
  void RenameInputs(Rename&& rename) {
    Touch();
    RenameAll(inputs_, rename);
  }
  template <class Rename>
  void RenameOutputs(Rename&& rename) {
    Touch();
    RenameAll(outputs_, rename);
  }

  const AttrList& attrs() const { return attrs_; }
  const Attribute* FindAttr(std::string_view name) const;  // nullptr when absent
  bool HasAttr(std::string_view name) const { return FindAttr(name) != nullptr; }
  void SetAttr(std::string_view name, Attribute value);
  void RemoveAttr(std::string_view name);
  // The attr converted to T, or `otherwise` if it is absent.
  template <class T>
  T GetAttr(std::string_view name, T otherwise) const {
    const Attribute* found = FindAttr(name);
    return found ? AttributeAs<T>(*found) : otherwise;
  }

  // The value of op_role; kForward if it is absent. Throws kInvalidArgument, naming the op, if the
  // attr is not an INT.
  int role() const;
  bool HasSubBlock() const;  // some attr is of the type BLOCK or BLOCKS
  // The block indices in its BLOCK and BLOCKS attrs, in the order of the attrs. They are unchecked,
  // as read from a file, and may name no block; see ProgramDesc::BlocksRunBy.
  std::vector<int> SubBlocks() const;
  // Replaces each of these indices by renumber(index).
  template <class Renumber>
  void RenumberSubBlocks(Renumber&& renumber);

  // Where the op was made ("lenet.pbtxt:14:9"), from op_callstack; "" when unknown.
  std::string creation_site() const;

  // Prune keeps an op that is a target.
  bool is_target() const { return is_target_.value_or(false); }
  void SetIsTarget(bool value) {
    Save();
    is_target_ = value;
  }

  // The block of the op; nullptr if it belongs to none.
  BlockDesc* block() { return block_; }
  const BlockDesc* block() const { return block_; }

  bool operator==(const OpDesc& other) const;

 private:
  friend class BlockDesc;
  friend struct internal::EditJournal;
  friend struct internal::FileFields;
  // Both must be called before a change; Touch if the change affects the block's index of uses.
  void Touch();
  void Save();

  template <class F>
  static auto CallAndGoOn(F& f) {
    return [&f](const std::string& name, const std::string& slot, size_t index) {
      internal::CallWithPlace(f, name, slot, index);
      return false;
    };
  }
  template <class Predicate>
  static bool AnyName(const SlotList& slots, Predicate&& holds) {
    for (const Slot& slot : slots) {
      for (size_t i = 0; i < slot.args.size(); ++i) {
        if (IsEmptyName(slot.args[i])) continue;
        if (internal::CallWithPlace(holds, slot.args[i], slot.name, i)) return true;
      }
    }
    return false;
  }
  template <class Rename>
  static void RenameAll(SlotList& slots, Rename& rename) {
    for (Slot& slot : slots) {
      for (size_t i = 0; i < slot.args.size(); ++i) {
        if (IsEmptyName(slot.args[i])) continue;
        slot.args[i] = internal::CallWithPlace(rename, slot.args[i], slot.name, i);
      }
    }
  }

  std::string type_;
  SlotList inputs_, outputs_;
  AttrList attrs_;
  std::optional<bool> is_target_;
  std::string unknown_fields_;  // see FileFields
  BlockDesc* block_ = nullptr;
  uint32_t stamp_ = 0;           // see EditJournal
  mutable size_t position_ = 0;  // in the block, as of the block's index of uses
};

template <class Renumber>
void OpDesc::RenumberSubBlocks(Renumber&& renumber) {
  Touch();
  for (NamedAttr& attr : attrs_) {
    if (auto* one = std::get_if<BlockRef>(&attr.value)) one->idx = renumber(one->idx);
    if (auto* many = std::get_if<std::vector<BlockRef>>(&attr.value)) {
      for (BlockRef& ref : *many) ref.idx = renumber(ref.idx);
    }
  }
}

}  // namespace coracle
