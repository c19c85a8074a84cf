#include <coracle/backward/saved_values.h>

namespace coracle::inline internal {

const SavedValue& SavedValues::Add(BlockDesc& block, std::string_view var, int32_t overwriter,
                                   const VarMeta& meta) {
  ProgramDesc& program = block.program();
  const std::string stem = std::string(var) + "@SAVED";
  std::string name = program.FreeName(stem);
  // Saved values are declared only when a gradient op uses them, so the program does not know all
  // of their names yet.
  while (by_name_.count(name)) name = program.UniqueName(stem);
  saved_.push_back({&block, std::string(var), overwriter, meta, std::move(name), false});
  by_name_.emplace(saved_.back().name, &saved_.back());
  return saved_.back();
}

void SavedValues::NoteUses(const std::vector<std::unique_ptr<OpDesc>>& ops) {
  if (saved_.empty()) return;
  for (const auto& op : ops) {
    op->ForEachInput([&](const std::string& name) {
      auto it = by_name_.find(name);
      if (it == by_name_.end() || it->second->used) return;
      it->second->used = true;
      it->second->block->Var(name).SetMeta(it->second->meta);
    });
  }
}

std::string SavedValues::ForwardOutput(OpDesc& op, std::string_view slot, const VarMeta& meta) {
  auto [it, added] = outputs_.try_emplace({&op, std::string(slot)});
  if (added) {
    it->second = op.block()->program().UniqueName(op.type() + "." + std::string(slot));
    VarDesc& var = op.block()->Var(it->second);
    var.SetMeta(meta);
    var.SetStopGradient(true);
    output_names_.insert(it->second);
  }
  return it->second;
}

bool SavedValues::Writes(const std::string& name) const {
  return by_name_.count(name) > 0 || output_names_.count(name) > 0;
}

void SavedValues::Finish() {
  for (const auto& [place, name] : outputs_) place.first->SetOutput(place.second, {name});
  // Inserts all copies at the end, in one sweep per block, because each insertion changes the
  // positions of later ops, and so the positions at which other values are overwritten.
  std::map<int, std::unordered_map<int32_t, std::vector<const SavedValue*>>> by_block;
  for (const SavedValue& saved : saved_) {
    if (saved.used) by_block[saved.block->idx()][saved.overwriter].push_back(&saved);
  }
  for (auto& [idx, before] : by_block) {
    BlockDesc& block = *before.begin()->second.front()->block;
    std::vector<std::unique_ptr<OpDesc>> old = block.ReleaseOps(), ops;
    ops.reserve(old.size() + saved_.size());
    for (size_t i = 0; i <= old.size(); ++i) {
      auto it = before.find(static_cast<int32_t>(i));
      if (it != before.end()) {
        for (const SavedValue* saved : it->second) {
          ops.push_back(std::make_unique<OpDesc>("assign", SlotList{{"X", {saved->var}}},
                                                 SlotList{{"Out", {saved->name}}},
                                                 AttrList{{kOpRoleAttr, int32_t{kForward}}}));
        }
      }
      if (i < old.size()) ops.push_back(std::move(old[i]));
    }
    block.SetOps(std::move(ops));
  }
}

}  // namespace coracle::inline internal
