#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/check/name_attrs.h>
#include <coracle/framework/op/context/inner_gradient.h>
#include <coracle/framework/op/recomputed.h>

#include <algorithm>
#include <iterator>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;
using Rename = std::function<std::string(const std::string&)>;

// Whether an attr of the type STRINGS holds names of variables.
bool HoldsNames(const NamedAttr& attr, bool runs_block) {
  constexpr std::string_view kHolders[] = {kOpRoleVarAttr, kRecomputedFromAttr, kOuterReadsAttr,
                                           kOuterInputsAttr};
  if (std::find(std::begin(kHolders), std::end(kHolders), attr.name) != std::end(kHolders))
    return true;
  return runs_block && attr.name != kOpCallstackAttr;
}

// A link is "tanh(h)" or "tanh(h#2)"; a name may contain '#' too.
std::string RenamedLink(const std::string& link, const Rename& rename) {
  const size_t open = link.find('(');
  if (open == link.npos || link.back() != ')') return link;
  const std::string output = link.substr(open + 1, link.size() - open - 2);
  std::string renamed = rename(output);
  const size_t hash = output.rfind('#');
  if (renamed == output && hash != output.npos)
    renamed = rename(output.substr(0, hash)) + output.substr(hash);
  return link.substr(0, open + 1) + renamed + ")";
}

}  // namespace

void RenameInAttrs(OpDesc& op, const Rename& rename) {
  const bool runs_block = op.HasSubBlock();
  const auto renamed = [&](const std::string& name) {
    return IsEmptyName(name) ? name : rename(name);
  };
  // Setting an existing attr moves no other attr, so the loop is safe.
  for (const NamedAttr& attr : op.attrs()) {
    if (const auto* one = std::get_if<VarRef>(&attr.value)) {
      op.SetAttr(attr.name, VarRef{renamed(one->name)});
    } else if (const auto* refs = std::get_if<std::vector<VarRef>>(&attr.value)) {
      std::vector<VarRef> to;
      for (const VarRef& ref : *refs) to.push_back({renamed(ref.name)});
      op.SetAttr(attr.name, std::move(to));
    } else if (const auto* names = std::get_if<Names>(&attr.value)) {
      if (!HoldsNames(attr, runs_block)) continue;
      Names to;
      for (const std::string& name : *names) to.push_back(renamed(name));
      op.SetAttr(attr.name, std::move(to));
    } else if (const auto* link = std::get_if<std::string>(&attr.value)) {
      if (attr.name == kForwardOpAttr) op.SetAttr(attr.name, RenamedLink(*link, renamed));
      if (attr.name == kTrainingOfAttr) op.SetAttr(attr.name, renamed(*link));
    }
  }
}

std::optional<Names> NamesIn(const NamedAttr& attr, bool runs_block) {
  if (const auto* one = std::get_if<VarRef>(&attr.value)) return Names{one->name};
  if (const auto* names = std::get_if<Names>(&attr.value))
    return HoldsNames(attr, runs_block) ? std::optional(*names) : std::nullopt;
  const auto* refs = std::get_if<std::vector<VarRef>>(&attr.value);
  if (!refs) return std::nullopt;
  Names names;
  for (const VarRef& ref : *refs) names.push_back(ref.name);
  return names;
}

void ForEachVarAttr(const OpDesc& op, const std::function<void(const std::string&)>& f) {
  for (const NamedAttr& attr : op.attrs()) {
    if (const auto* one = std::get_if<VarRef>(&attr.value)) f(one->name);
    if (const auto* refs = std::get_if<std::vector<VarRef>>(&attr.value)) {
      for (const VarRef& ref : *refs) f(ref.name);
    }
  }
}

}  // namespace coracle::inline internal
