#include <coracle/framework/ir/edit_journal.h>
#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/training_stage.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

const Slot* Find(const SlotList& slots, std::string_view name) {
  for (const Slot& slot : slots) {
    if (slot.name == name) return &slot;
  }
  return nullptr;
}

const std::vector<std::string>& ArgsOf(const SlotList& slots, std::string_view name) {
  static const std::vector<std::string> none;
  const Slot* slot = Find(slots, name);
  return slot ? slot->args : none;
}

bool HasRealName(const SlotList& slots, std::string_view name) {
  const auto& args = ArgsOf(slots, name);
  return std::any_of(args.begin(), args.end(),
                     [](const std::string& a) { return !IsEmptyName(a); });
}

void Assign(SlotList& slots, std::string_view name, std::vector<std::string> args) {
  for (Slot& slot : slots) {
    if (slot.name == name) {
      slot.args = std::move(args);
      return;
    }
  }
  slots.push_back({std::string(name), std::move(args)});
}

void Remove(SlotList& slots, std::string_view name) {
  std::erase_if(slots, [&](const Slot& s) { return s.name == name; });
}

void Rename(SlotList& slots, const std::string& from, const std::string& to) {
  for (Slot& slot : slots) std::replace(slot.args.begin(), slot.args.end(), from, to);
}

bool NamesBlock(const Attribute& attr) {
  const AttrType type = TypeOf(attr);
  return type == AttrType::kBlock || type == AttrType::kBlocks;
}

}  // namespace

bool IsBookkeepingAttr(std::string_view name) {
  return name == kOpRoleAttr || name == kOpRoleVarAttr || name == kOpNamescopeAttr ||
         name == kOpCallstackAttr || name == kOpDeviceAttr || name == kForwardOpAttr ||
         name == kOpOriginAttr || name == kTrainingStageAttr || name == kTrainingPartAttr ||
         name == kTrainingOfAttr;
}

OpDesc::OpDesc(std::string type, SlotList inputs, SlotList outputs, AttrList attrs)
    : type_(std::move(type)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      attrs_(std::move(attrs)) {}

OpDesc::OpDesc(const OpDesc& other)
    : type_(other.type_),
      inputs_(other.inputs_),
      outputs_(other.outputs_),
      attrs_(other.attrs_),
      is_target_(other.is_target_),
      unknown_fields_(other.unknown_fields_) {}

void OpDesc::Touch() {
  Save();
  if (block_) block_->NoteEdit(*this);
}

void OpDesc::Save() {
  if (!block_) return;
  if (auto* journal = block_->journal()) journal->SaveOp(*this);
}

void OpDesc::SetType(std::string type) {
  Save();
  type_ = std::move(type);
}

const std::vector<std::string>& OpDesc::Input(std::string_view slot) const {
  return ArgsOf(inputs_, slot);
}
const std::vector<std::string>& OpDesc::Output(std::string_view slot) const {
  return ArgsOf(outputs_, slot);
}
bool OpDesc::HasInput(std::string_view slot) const { return HasRealName(inputs_, slot); }
bool OpDesc::HasOutput(std::string_view slot) const { return HasRealName(outputs_, slot); }

void OpDesc::SetInput(std::string_view slot, std::vector<std::string> args) {
  Touch();
  Assign(inputs_, slot, std::move(args));
}

void OpDesc::SetOutput(std::string_view slot, std::vector<std::string> args) {
  Touch();
  Assign(outputs_, slot, std::move(args));
}

void OpDesc::RemoveInput(std::string_view slot) {
  Touch();
  Remove(inputs_, slot);
}

void OpDesc::RemoveOutput(std::string_view slot) {
  Touch();
  Remove(outputs_, slot);
}

void OpDesc::RenameInput(const std::string& from, const std::string& to) {
  Touch();
  Rename(inputs_, from, to);
}

void OpDesc::RenameOutput(const std::string& from, const std::string& to) {
  Touch();
  Rename(outputs_, from, to);
}

bool OpDesc::Reads(std::string_view name) const {
  return AnyInput([&](const std::string& read) { return read == name; });
}

std::string OpDesc::FirstOutput() const {
  std::string first;
  AnyOutput([&](const std::string& name) {
    first = name;
    return true;
  });
  return first;
}

bool OpDesc::Writes(std::string_view name) const {
  return AnyOutput([&](const std::string& written) { return written == name; });
}

const Attribute* OpDesc::FindAttr(std::string_view name) const {
  for (const NamedAttr& attr : attrs_) {
    if (attr.name == name) return &attr.value;
  }
  return nullptr;
}

void OpDesc::SetAttr(std::string_view name, Attribute value) {
  Save();
  const Attribute* found = FindAttr(name);
  if (NamesBlock(value) || (found && NamesBlock(*found))) Touch();
  for (NamedAttr& attr : attrs_) {
    if (attr.name == name) {
      attr.value = std::move(value);
      return;
    }
  }
  attrs_.push_back({std::string(name), std::move(value)});
}

void OpDesc::RemoveAttr(std::string_view name) {
  Save();
  const Attribute* found = FindAttr(name);
  if (found && NamesBlock(*found)) Touch();
  std::erase_if(attrs_, [&](const NamedAttr& a) { return a.name == name; });
}

int OpDesc::role() const {
  const Attribute* role = FindAttr(kOpRoleAttr);
  if (!role) return kForward;
  Attribute number;
  if (!ConvertAttribute(*role, AttrType::kInt, &number)) {
    std::string place = "op " + type_;
    AnyOutput([&](const std::string& name) {
      place += " that writes '" + name + "'";
      return true;
    });
    if (block_) place += fmt::format(", block {}", block_->idx());
    ThrowInvalid(fmt::format("{}: attr op_role must be INT, got {}", place, ToString(*role)));
  }
  return std::get<int32_t>(number);
}

bool OpDesc::HasSubBlock() const {
  return std::any_of(attrs_.begin(), attrs_.end(),
                     [](const NamedAttr& attr) { return NamesBlock(attr.value); });
}

std::vector<int> OpDesc::SubBlocks() const {
  std::vector<int> blocks;
  for (const NamedAttr& attr : attrs_) {
    if (const auto* one = std::get_if<BlockRef>(&attr.value)) blocks.push_back(one->idx);
    if (const auto* many = std::get_if<std::vector<BlockRef>>(&attr.value)) {
      for (BlockRef ref : *many) blocks.push_back(ref.idx);
    }
  }
  return blocks;
}

namespace {

// Whether the line is like "lenet.pbtxt:14:9", in contrast to a line of a Python stack.
bool IsPlace(std::string_view line) {
  for (int part = 0; part < 2; ++part) {
    const size_t digits = line.find_last_not_of("0123456789");
    if (digits == line.npos || digits + 1 == line.size() || line[digits] != ':') return false;
    line = line.substr(0, digits);
  }
  return true;
}

}  // namespace

std::string OpDesc::creation_site() const {
  const Attribute* stack = FindAttr(kOpCallstackAttr);
  if (!stack) return "";
  const auto* lines = std::get_if<std::vector<std::string>>(stack);
  return lines && !lines->empty() && IsPlace(lines->front()) ? lines->front() : "";
}

bool OpDesc::operator==(const OpDesc& other) const {
  return type_ == other.type_ && inputs_ == other.inputs_ && outputs_ == other.outputs_ &&
         attrs_ == other.attrs_ && is_target() == other.is_target() &&
         unknown_fields_ == other.unknown_fields_;
}

}  // namespace coracle
