#include <coracle/convert/pir/in_place.h>
#include <coracle/convert/pir/op_reader.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace coracle::pir {

std::vector<InPlace> InPlaceOf(const Op& op) {
  if (!op.name.starts_with("pd_op.") || !op.name.ends_with('_')) return {};
  // Source: the keys `inplace` and `view` of Paddle's ops.yaml and static_ops.yaml. All others
  // write their first result into their first operand.
  static const std::vector<InPlace> quantize = {{1, 3}, {3, 2}, {4, 1}};  // scale, accum, state
  static const std::unordered_map<std::string, std::vector<InPlace>> others = {
      {"assign_out", {{1, 0}}},
      {"dequantize_linear", quantize},
      {"quantize_linear", quantize},
      {"rnn", {{4, 1}}},
      {"where", {{1, 0}}}};
  const std::string name = op.ShortName();
  if (name == "array_write") return {};
  const Row* row = FindRow(name);
  if (row && std::string_view(row->outputs).find('=') != std::string_view::npos) return {};
  const auto found = others.find(name);
  std::vector<InPlace> pairs = found == others.end() ? std::vector<InPlace>(1) : found->second;
  std::erase_if(pairs, [&](const InPlace& pair) {
    return pair.operand >= op.operands.size() || pair.result >= op.results.size() ||
           op.operands[pair.operand] == 0 || op.results[pair.result].id == 0;
  });
  return pairs;
}

InPlacePlan::InPlacePlan(const Block& program) {
  Walk(program);
  if (changes_.empty()) return;
  JoinItems();
  JoinChanges();
  FindShared();
  FindRefused();
}

bool InPlacePlan::Shared(int64_t id) const {
  if (shared_.empty()) return false;
  for (auto up = parents_.find(id); up != parents_.end() && up->second != id;
       up = parents_.find(id))
    id = up->second;
  return shared_.count(id) > 0;
}

std::string InPlacePlan::WhyNot(const Op& op) const {
  const auto found = refused_.find(&op);
  return found == refused_.end() ? "" : found->second;
}

void InPlacePlan::Begin(int64_t id) { lives_[id].begin = time_; }

void InPlacePlan::Read(int64_t id, int64_t time) {
  Life& life = lives_[id];
  life.last_read = std::max(life.last_read, time);
}

void InPlacePlan::Walk(const Block& block) {
  for (const Result& argument : block.arguments) Begin(argument.id);
  for (const Op& op : block.ops) {
    ++time_;
    for (int64_t id : op.operands) {
      if (id == 0) continue;
      Read(id, time_);
      reads_.push_back(id);
    }
    if (!op.blocks.empty()) WalkBlocks(op);
    for (const Result& result : op.results) Begin(result.id);
    NoteOp(op);
  }
}

void InPlacePlan::WalkBlocks(const Op& op) {
  const int64_t begin = time_;
  const size_t first = reads_.size();
  for (const Block& block : op.blocks) Walk(block);
  ++time_;
  NoteHandovers(op, begin);
  if (op.name != "pd_op.while") return;
  // The next turn reads again what began before the loop.
  for (size_t i = first; i < reads_.size(); ++i)
    if (lives_[reads_[i]].begin < begin) Read(reads_[i], time_);
}

void InPlacePlan::NoteHandovers(const Op& op, int64_t begin) {
  const bool loop = op.name == "pd_op.while";
  for (size_t i = 0; loop && i + 1 < op.operands.size() && i < op.results.size(); ++i) {
    handovers_.push_back({op.operands[i + 1], op.results[i].id});
    if (i < op.blocks[0].arguments.size())
      handovers_.push_back({op.operands[i + 1], op.blocks[0].arguments[i].id});
  }
  for (const Block& block : op.blocks) {
    if (block.ops.empty() || block.ops.back().name != "cf.yield") continue;
    const std::vector<int64_t>& given = block.ops.back().operands;
    for (size_t i = loop; i < given.size(); ++i) {
      const size_t k = i - loop;
      // A value that began in the block has no reader after it.
      if (k >= op.results.size() || lives_[given[i]].begin >= begin) continue;
      handovers_.push_back({given[i], op.results[k].id});
      if (loop && k < block.arguments.size())
        handovers_.push_back({given[i], block.arguments[k].id});
    }
  }
}

void InPlacePlan::NoteOp(const Op& op) {
  if (op.name == "builtin.parameter" && !op.results.empty()) {
    // The next run reads it.
    Read(op.results[0].id, std::numeric_limits<int64_t>::max());
  } else if (op.name == "builtin.combine" && op.results.size() == 1) {
    lists_.emplace(op.results[0].id, op.operands);
  } else if (op.name == "builtin.split" && op.operands.size() == 1) {
    for (size_t i = 0; i < op.results.size(); ++i)
      items_.push_back({{op.operands[0], static_cast<int64_t>(i)}, op.results[i].id});
  } else if (op.name == "builtin.slice" && op.operands.size() == 1 && op.results.size() == 1) {
    const Attribute* index = op.Find("index");
    Attribute number = int64_t{0};
    if (!index || ConvertAttribute(*index, AttrType::kLong, &number))
      items_.push_back({{op.operands[0], std::get<int64_t>(number)}, op.results[0].id});
  } else {
    for (const InPlace& pair : InPlaceOf(op))
      changes_.push_back({&op, time_, op.operands[pair.operand], op.results[pair.result].id});
  }
}

// A reader of a list reads its items.
void InPlacePlan::JoinItems() {
  for (const auto& [list, items] : lists_)
    for (int64_t item : items) Read(item, lives_[list].last_read);
  std::map<std::pair<int64_t, int64_t>, int64_t> firsts;
  for (const auto& [place, item] : items_) {
    const auto& [list, index] = place;
    Read(item, lives_[list].last_read);
    const auto found = lists_.find(list);
    if (found == lists_.end())
      Join(item, firsts.emplace(place, item).first->second);
    else if (index >= 0 && static_cast<size_t>(index) < found->second.size())
      Join(item, found->second[static_cast<size_t>(index)]);
  }
}

void InPlacePlan::JoinChanges() {
  for (Change& change : changes_) {
    const auto list = lists_.find(change.target);
    if (list != lists_.end() && !list->second.empty()) change.target = list->second[0];
    Join(change.target, change.result);
  }
  for (const Change& change : changes_) of_root_[Root(change.target)].push_back(&change);
}

// Values share a variable if one of them begins before a change and is read after it.
void InPlacePlan::FindShared() {
  for (const auto& [id, life] : lives_) {
    const auto changes = of_root_.find(Root(id));
    if (changes == of_root_.end()) continue;
    const auto next =
        std::upper_bound(changes->second.begin(), changes->second.end(), life.begin,
                         [](int64_t time, const Change* change) { return time < change->time; });
    if (next != changes->second.end() && (*next)->time < life.last_read)
      shared_.insert(changes->first);
  }
}

// A change after a handover also changes the value that was handed over.
void InPlacePlan::FindRefused() {
  for (const Handover& handover : handovers_) {
    const auto changes = of_root_.find(Root(handover.to));
    if (changes == of_root_.end()) continue;
    const Change& first = *changes->second.front();
    if (first.time >= lives_[handover.from].last_read) continue;
    refused_.emplace(first.op,
                     fmt::format("it changes the value {} of a block in place, which has the "
                                 "memory of the value {}, and an op reads that later",
                                 handover.to, handover.from));
  }
}

int64_t InPlacePlan::Root(int64_t id) {
  int64_t root = id;
  for (auto up = parents_.find(root); up != parents_.end() && up->second != root;
       up = parents_.find(root))
    root = up->second;
  while (id != root) {
    int64_t& up = parents_[id];
    id = up;
    up = root;
  }
  return root;
}

}  // namespace coracle::pir
