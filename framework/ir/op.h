#pragma once
// OpDesc: one op of a block: its type, the variables in its slots, and its attrs, in the order in
// which they were given.

#include <coracle/framework/ir/attribute.h>
#include <coracle/framework/ir/names.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

class BlockDesc;

// A named input or output of an op with the names of its variables.
struct Slot {
  std::string name;
  std::vector<std::string> args;
  bool operator==(const Slot&) const = default;
};
using SlotList = std::vector<Slot>;
using AttrList = std::vector<NamedAttr>;

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
  bool HasInput(std::string_view slot) const;  // present, with at least one real name
  bool HasOutput(std::string_view slot) const;
  // Replace the slot's variables, keeping its place; a new slot goes to the end.
  void SetInput(std::string_view slot, std::vector<std::string> args);
  void SetOutput(std::string_view slot, std::vector<std::string> args);
  void RemoveInput(std::string_view slot);
  void RemoveOutput(std::string_view slot);
  // Replace a variable wherever the op reads (writes) it.
  void RenameInput(const std::string& from, const std::string& to);
  void RenameOutput(const std::string& from, const std::string& to);

  const AttrList& attrs() const { return attrs_; }
  const Attribute* FindAttr(std::string_view name) const;  // nullptr when absent
  bool HasAttr(std::string_view name) const { return FindAttr(name) != nullptr; }
  void SetAttr(std::string_view name, Attribute value);
  void RemoveAttr(std::string_view name);
  // The attr converted to T, or `otherwise` when it is absent.
  template <class T>
  T GetAttr(std::string_view name, T otherwise) const {
    const Attribute* found = FindAttr(name);
    return found ? AttributeAs<T>(*found) : otherwise;
  }

  int role() const { return GetAttr<int32_t>(kOpRoleAttr, kForward); }
  bool HasSubBlock() const;  // some attr names a block

  // Where the op was made ("lenet.pbtxt:14:9"), from op_callstack; "" when unknown.
  std::string creation_site() const;

  bool is_target() const { return is_target_.value_or(false); }
  std::optional<bool>& is_target_field() { return is_target_; }
  const std::optional<bool>& is_target_field() const { return is_target_; }
  // For the codec only: fields of a newer format, as they were read.
  const std::string& unknown_fields() const { return unknown_fields_; }
  void SetUnknownFields(std::string bytes) { unknown_fields_ = std::move(bytes); }

  // nullptr when the op belongs to no block.
  BlockDesc* block() const { return block_; }

  bool operator==(const OpDesc& other) const;

 private:
  friend class BlockDesc;
  void Touch();

  std::string type_;
  SlotList inputs_, outputs_;
  AttrList attrs_;
  std::optional<bool> is_target_;
  std::string unknown_fields_;
  BlockDesc* block_ = nullptr;
  mutable size_t position_ = 0;  // in the block, as of the block's index of uses
};

}  // namespace coracle
