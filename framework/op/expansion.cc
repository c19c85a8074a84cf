#include <coracle/framework/base/text.h>
#include <coracle/framework/op/expansion.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {

Variable ExpandContext::In(std::string_view slot, size_t i) const {
  return writer_.Var(op_.Input(slot).at(i));
}

const Shape& ExpandContext::InShape(std::string_view slot, size_t i) const {
  return In(slot, i).desc().shape();
}

SlotList ExpandContext::Inputs(std::initializer_list<const char*> slots) const {
  SlotList inputs;
  for (const char* slot : slots) {
    if (op_.HasInput(slot)) inputs.push_back({slot, op_.Input(slot)});
  }
  return inputs;
}

AttrList ExpandContext::AttrsOf(std::string_view type) const {
  const OpSpec& other = writer_.ops().Get(type);
  AttrList attrs;
  for (const AttrDef& attr : spec_.attrs) {
    if (other.FindAttr(attr.name)) attrs.push_back({attr.name, spec_.AttrValue(op_, attr.name)});
  }
  return attrs;
}

Variable ExpandContext::Make(const std::string& type, SlotList inputs, AttrList attrs,
                             const std::string& output) const {
  return writer_.Make(type, std::move(inputs), std::move(attrs), output);
}

std::string ExpandContext::Out(std::string_view slot, size_t i) {
  const std::vector<std::string>& names = op_.Output(slot);
  const bool has = i < names.size() && !IsEmptyName(names[i]);
  if (has && !op_.Reads(names[i])) return names[i];
  std::string made = new_name_(std::string(slot));
  if (has) copies_.emplace_back(made, names[i]);
  return made;
}

Variable ExpandContext::Into(std::string_view slot, const std::string& type, SlotList inputs,
                             AttrList attrs, const std::string& output) {
  return writer_.Into(Out(slot), type, std::move(inputs), std::move(attrs), output);
}

void ExpandContext::Append(const std::string& type, SlotList inputs, SlotList outputs,
                           AttrList attrs) const {
  writer_.Append(type, std::move(inputs), std::move(outputs), std::move(attrs));
}

void ExpandContext::Finish() {
  const BlockDesc& block = writer_.block();
  const std::vector<std::string>& types = spec_.expands_to;
  block.ForEachOp([&](const OpDesc& op) {
    if (std::find(types.begin(), types.end(), op.type()) != types.end()) return;
    throw InternalError(
        fmt::format("{}: its expansion does not declare the op {}", spec_.type, op.type()));
  });
  for (const auto& [made, output] : copies_) Append("assign", {{"X", {made}}}, {{"Out", {output}}});
  op_.ForEachOutput([&](const std::string& name, const std::string& slot) {
    const SlotDef* def = spec_.FindOutput(slot);
    if (!block.Uses(name).writers.empty() || (def && def->intermediate)) return;
    throw InternalError(fmt::format("{}: its expansion does not write {}", spec_.type, slot));
  });
}

ProgramDesc ExpandOp(const OpSpec& spec, const OpDesc& op, const OpRegistry& ops,
                     const MetaTable& types, const ExpandContext::NewName& new_name) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  op.ForEachInput([&](const std::string& name) {
    const VarMeta* meta = types.Find(name);
    if (!IsEmptyName(name) && meta) block.Var(name).SetMeta(*meta);
  });
  const Writer writer(block, ops, {.name = new_name});
  ExpandContext context(spec, op, writer, new_name);
  try {
    spec.expand(context);
    context.Finish();
  } catch (const InternalError&) {
    throw;
  } catch (const Error& e) {
    throw e.WithPrefix(spec.type).WithDetail("  " + Locate(op));
  }
  return program;
}

}  // namespace coracle::inline internal
