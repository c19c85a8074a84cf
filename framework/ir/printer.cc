#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/listing.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/tensor/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

using Buffer = fmt::memory_buffer;

void Put(Buffer& out, std::string_view text) { out.append(text.data(), text.data() + text.size()); }

bool IsPlain(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return c > ' ' && c != 0x7f && c != '\'' && c != '(' && c != ')' && c != '=' && c != ',';
  });
}

void PutName(Buffer& out, std::string_view name) {
  if (IsPlain(name) && name.size() <= 300)
    Put(out, name);
  else
    Put(out, Quote(name, 300));
}

// The number of characters in UTF-8 text.
size_t Columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

// "1 op", "2 ops".
std::string Counted(size_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

void PutMeta(Buffer& out, const VarMeta& meta) {
  if (meta.type != VarType::kLoDTensor) {
    Put(out, ToString(meta.type));
    if (meta.shape.rank() == 0) return;
    Put(out, " ");
  }
  Put(out, ToString(meta.dtype));
  Put(out, "[");
  for (int i = 0; i < meta.shape.rank(); ++i) {
    if (i > 0) Put(out, ",");
    const fmt::format_int dim(meta.shape[i]);
    out.append(dim.data(), dim.data() + dim.size());
  }
  Put(out, "]");
  if (meta.lod_level > 0) fmt::format_to(std::back_inserter(out), " lod {}", meta.lod_level);
}

}  // namespace

std::string internal::NameText(std::string_view name) {
  Buffer out;
  PutName(out, name);
  return fmt::to_string(out);
}

std::string internal::AttrText(const Attribute& attribute) {
  constexpr size_t kShown = 12, kLongest = 200;
  std::string text = std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (requires { value.begin() + 1; } && !std::is_same_v<T, std::string>) {
          if (value.size() > kShown) {
            std::string shown = ToString(Attribute(T(value.begin(), value.begin() + kShown)));
            shown.pop_back();
            return fmt::format("{}, ... {} in all]", shown, value.size());
          }
        }
        return ToString(Attribute(value));
      },
      attribute);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

std::string internal::SettingText(const Setting& setting) {
  Buffer out;
  PutName(out, setting.kind);
  for (size_t i = 0; i < setting.attrs.size(); ++i) {
    Put(out, i == 0 ? "(" : ", ");
    PutName(out, setting.attrs[i].name);
    Put(out, "=");
    Put(out, AttrText(setting.attrs[i].value));
  }
  if (!setting.attrs.empty()) Put(out, ")");
  return fmt::to_string(out);
}

namespace {

// The section in which an op of the stage is listed.
TrainingStage SectionOf(TrainingStage stage) {
  switch (stage) {
    case TrainingStage::kForward:
    case TrainingStage::kScaleLoss:
      return TrainingStage::kForward;
    case TrainingStage::kBackward:
    case TrainingStage::kErrorClip:
      return TrainingStage::kBackward;
    case TrainingStage::kSchedule:
    case TrainingStage::kCommunicate:
      return stage;
    default:
      return TrainingStage::kOptimize;
  }
}

using VarList = std::vector<const VarDesc*>;

// The variables of a block by section of the listing.
struct Sections {
  VarList inputs, outputs, settings, parameters, gradients, persistable, unused, others;
};

class Printer {
 public:
  Printer(const ProgramDesc& program, const PrintOptions& options)
      : program_(program), options_(options), filtered_(options.keep_op || options.keep_var) {}

  std::string Run() {
    if (!filtered_ && options_.block < 0) PutSummary();
    for (int i = 0; i < program_.NumBlocks(); ++i) {
      if (options_.block < 0 || options_.block == i) PutBlock(program_.Block(i));
    }
    return fmt::to_string(out_);
  }

 private:
  template <class... Args>
  void Format(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void PutSummary();
  void PutTrainingStep();
  void PutStages(const BlockDesc& block, size_t depth, std::unordered_set<int>& seen);
  void PutBlock(const BlockDesc& block);
  Sections SectionsOf(const BlockDesc& block);
  void PutSection(const char* title, const VarList& vars);
  void PutSettings(const VarDesc& var);
  void PutOps(const BlockDesc& block);

  const ProgramDesc& program_;
  const PrintOptions& options_;
  bool filtered_;
  Buffer out_;
};

std::string SizeText(const VarMeta& meta) {
  if (meta.type != VarType::kLoDTensor || !meta.shape.IsKnown()) return "";
  try {
    return HumanBytes(ByteSize(meta.dtype, meta.shape));
  } catch (const Error&) {  // more elements than a tensor can have
    return "";
  }
}

void Printer::PutSummary() {
  size_t ops = 0, vars = 0;
  for (int i = 0; i < program_.NumBlocks(); ++i) {
    ops += program_.Block(i).NumOps();
    vars += program_.Block(i).NumVars();
  }
  size_t parameters = 0;
  double elements = 0, bytes = 0;
  for (size_t i = 0; i < program_.Root().NumVars(); ++i) {
    const VarDesc& var = program_.Root().var(i);
    if (!var.is_parameter()) continue;
    double count = 1;
    for (int64_t dim : var.shape()) count *= static_cast<double>(std::max<int64_t>(dim, 0));
    ++parameters;
    elements += count;
    bytes += count * static_cast<double>(SizeOf(var.dtype()));
  }
  Format("program: {}, {}, {}, {}", Counted(static_cast<size_t>(program_.NumBlocks()), "block"),
         Counted(ops, "op"), Counted(vars, "variable"), Counted(parameters, "parameter"));
  if (parameters > 0 && bytes < 1e18) {
    Format(" ({} elements, {})", HumanCount(static_cast<uint64_t>(elements)),
           HumanBytes(static_cast<uint64_t>(bytes)));
  }
  if (program_.version && *program_.version > 0) {
    const int64_t v = *program_.version;
    Format(", written by Paddle {}.{}.{}", v / 1000000, v / 1000 % 1000, v % 1000);
  }
  if (program_.random_seed != 0) Format(", random_seed {}", program_.random_seed);
  Put(out_, "\n");
  PutTrainingStep();
}

// "training step: forward 6 ops -> backward 9 -> error clip 1 -> update 4 (momentum)".
void Printer::PutTrainingStep() {
  const BlockDesc& root = program_.Root();
  bool several = false;
  root.ForEachOp([&](const OpDesc& op) { several |= StageOf(op) != StageOf(root.op(0)); });
  if (!several) return;
  Put(out_, "training step: ");
  std::unordered_set<int> seen = {0};
  PutStages(root, 0, seen);
}

// The block that an update op runs under a condition; nullptr for an op without such a block, and
// for a block in `seen`. Adds the block to `seen`.
const BlockDesc* GuardedBlockOf(const OpDesc& op, TrainingStage stage,
                                std::unordered_set<int>& seen) {
  if (SectionOf(stage) != TrainingStage::kOptimize || !op.HasInput("Cond") || !op.HasSubBlock())
    return nullptr;
  const ProgramDesc& program = op.block()->program();
  const std::vector<int> blocks = op.SubBlocks();
  if (blocks.empty() || blocks[0] < 0 || blocks[0] >= program.NumBlocks()) return nullptr;
  return seen.insert(blocks[0]).second ? &program.Block(blocks[0]) : nullptr;
}

// A stage and its number of ops, or a block that runs under a condition.
struct StepPart {
  std::string title;
  size_t ops = 0;
  std::set<std::string> updates = {};  // types of the ops that update parameters
  const BlockDesc* block = nullptr;
};

std::string GuardText(const OpDesc& op, const BlockDesc& block) {
  Buffer text;
  fmt::format_to(std::back_inserter(text), "block {} if ", block.idx());
  PutName(text, op.Input("Cond").front());
  return fmt::to_string(text);
}

// Returns the parts in order of first occurrence.
std::vector<StepPart> StepPartsOf(const BlockDesc& block, std::unordered_set<int>& seen) {
  std::vector<StepPart> parts;
  std::map<TrainingStage, size_t> part_of;
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    const TrainingStage stage = StageOf(op);
    if (const BlockDesc* guarded = GuardedBlockOf(op, stage, seen)) {
      parts.push_back({.title = GuardText(op, *guarded), .block = guarded});
      continue;
    }
    const auto [place, added] = part_of.try_emplace(stage, parts.size());
    if (added) parts.push_back({.title = ToString(stage)});
    StepPart& part = parts[place->second];
    ++part.ops;
    if (op.HasInput("Param")) part.updates.insert(op.type());
  }
  return parts;
}

// Lists some of the op types that update parameters: " (adam, sgd)".
void PutUpdates(Buffer& out, const std::set<std::string>& updates) {
  constexpr size_t kShown = 8;
  size_t n = 0;
  for (const std::string& type : updates) {
    Put(out, n == 0 ? " (" : ", ");
    if (n++ == kShown) {
      Put(out, "...");
      break;
    }
    PutName(out, type);
  }
  if (n > 0) Put(out, ")");
}

// Writes a line for the block, then one for each block that it runs under a condition.
void Printer::PutStages(const BlockDesc& block, size_t depth, std::unordered_set<int>& seen) {
  const std::vector<StepPart> parts = StepPartsOf(block, seen);
  for (size_t i = 0; i < parts.size(); ++i) {
    const StepPart& part = parts[i];
    Format("{}{}", i == 0 ? "" : " -> ", part.title);
    if (part.ops > 0) Format(" {}", i == 0 ? Counted(part.ops, "op") : std::to_string(part.ops));
    PutUpdates(out_, part.updates);
  }
  Put(out_, "\n");
  constexpr size_t kDeepest = 12;  // limits the output for a malicious program
  for (const StepPart& part : parts) {
    if (!part.block || depth == kDeepest) continue;
    Format("{:{}}block {}: ", "", 2 * depth + 2, part.block->idx());
    PutStages(*part.block, depth + 1, seen);
  }
}

// The number of enclosing blocks, limited since a malicious program may nest without end.
size_t DepthOf(const BlockDesc& block) {
  constexpr size_t kMost = 12;
  size_t depth = 0;
  for (const BlockDesc* b = block.parent(); b && depth < kMost; b = b->parent()) ++depth;
  return depth;
}

void IndentFrom(Buffer& out, size_t start, size_t columns) {
  if (columns == 0) return;
  const std::string text(out.data() + start, out.size() - start);
  out.resize(start);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    if (text[at] != '\n') Put(out, std::string(columns, ' '));
    Put(out, std::string_view(text).substr(at, end - at));
    at = end;
  }
}

void Printer::PutBlock(const BlockDesc& block) {
  if (out_.size() > 0) Put(out_, "\n");
  const size_t start = out_.size();
  Format("block {}", block.idx());
  if (block.parent_idx() >= 0) Format(", parent {}", block.parent_idx());
  if (block.forward_block_idx() >= 0) Format(", forward block {}", block.forward_block_idx());
  Put(out_, "\n");
  const Sections sections = SectionsOf(block);
  PutSection("inputs", sections.inputs);
  PutSection("outputs", sections.outputs);
  PutSection("variables with settings", sections.settings);
  PutOps(block);
  PutSection("parameters", sections.parameters);
  PutSection("gradients of parameters", sections.gradients);
  PutSection("persistable", sections.persistable);
  PutSection("variables that no op of this block uses", sections.unused);
  PutSection("variables", sections.others);
  IndentFrom(out_, start, 2 * DepthOf(block));
}

void PutSetting(Buffer& out, const char* title, const Setting& setting) {
  fmt::format_to(std::back_inserter(out), "  {} {}", title, SettingText(setting));
}

void Printer::PutSettings(const VarDesc& var) {
  const TrainingAttr& t = var.training();
  if (t.error_clip) {
    if (std::optional<Setting> saved = t.error_clip->Save())
      PutSetting(out_, "error_clip", *saved);
    else
      Put(out_, "  error_clip of a class that is not saved");
  }
  if (!t.trainable) Put(out_, "  not trainable");
  if (t.learning_rate != 1) Format("  learning_rate {}", t.learning_rate);
  if (t.regularizer) PutSetting(out_, "regularizer", *t.regularizer);
  if (t.gradient_clip) PutSetting(out_, "gradient_clip", *t.gradient_clip);
  if (t.initializer) PutSetting(out_, "initializer", *t.initializer);
  if (var.stop_gradient()) Put(out_, "  stop_gradient");
}

void Printer::PutSection(const char* title, const VarList& vars) {
  if (vars.empty()) return;
  Format("  {}\n", title);
  size_t width = 0;
  for (const VarDesc* var : vars)
    width = std::max(width, std::min<size_t>(40, Columns(var->name())));
  for (const VarDesc* var : vars) {
    Put(out_, "    ");
    const size_t start = out_.size();
    PutName(out_, var->name());
    const size_t used = Columns({out_.data() + start, out_.size() - start});
    for (size_t i = used; i < std::max(width, used) + 2; ++i) out_.push_back(' ');
    PutMeta(out_, var->meta());
    if (var->persistable()) {
      const std::string size = SizeText(var->meta());
      if (!size.empty()) Format("  {}", size);
    }
    PutSettings(*var);
    Put(out_, "\n");
  }
}

enum Use : uint8_t {
  kRead = 1,
  kWritten = 2,
  kFed = 4,      // by an op that reads the list of feeds
  kFetched = 8,  // by an op that writes the list of fetches
  kResult = 16,  // written by an op none of whose outputs is read
};
using Uses = std::unordered_map<std::string_view, uint8_t>;

bool IsList(const BlockDesc& block, const std::string& name, VarType type) {
  const VarDesc* var = block.FindVarRecursive(name);
  return var && var->type() == type;
}

void NoteUses(const OpDesc& op, Uses* uses) {
  const BlockDesc& block = *op.block();
  const bool feeds = op.AnyInput(
      [&](const std::string& name) { return IsList(block, name, VarType::kFeedMinibatch); });
  const bool fetches = op.AnyOutput(
      [&](const std::string& name) { return IsList(block, name, VarType::kFetchList); });
  op.ForEachOutput([&](const std::string& name) { (*uses)[name] |= feeds ? kFed : kWritten; });
  op.ForEachInput(
      [&](const std::string& name) { (*uses)[name] |= fetches ? kRead | kFetched : kRead; });
}

// How the ops of a block use each name.
Uses UsesIn(const BlockDesc& block) {
  Uses uses;
  uses.reserve(block.NumVars());
  block.ForEachOp([&](const OpDesc& op) { NoteUses(op, &uses); });
  block.ForEachOp([&](const OpDesc& op) {
    if (op.AnyOutput([&](const std::string& name) { return (uses[name] & kRead) != 0; })) return;
    op.ForEachOutput([&](const std::string& name) { uses[name] |= kResult; });
  });
  return uses;
}

bool FetchesAny(const Uses& uses) {
  return std::any_of(uses.begin(), uses.end(),
                     [](const auto& use) { return (use.second & kFetched) != 0; });
}

bool IsParameterGradient(const VarDesc& var, const BlockDesc& block) {
  std::string_view name = var.name();
  if (!name.ends_with(kGradSuffix)) return false;
  name.remove_suffix(kGradSuffix.size());
  const VarDesc* of = block.FindVar(name);
  return of && of->is_parameter();
}

Sections Printer::SectionsOf(const BlockDesc& block) {
  Sections to;
  if (options_.keep_op && !options_.keep_var) return to;
  const Uses uses = UsesIn(block);
  const uint8_t output = FetchesAny(uses) ? kFetched : kResult;
  for (size_t i = 0; i < block.NumVars(); ++i) {
    const VarDesc& var = block.var(i);
    if (options_.keep_var && !options_.keep_var(var)) continue;
    const auto found = uses.find(var.name());
    const int use = found == uses.end() ? 0 : found->second;
    const bool plain =
        !var.error_clip() && var.training().IsDefault() && var.type() == VarType::kLoDTensor;
    if (var.is_parameter())
      to.parameters.push_back(&var);
    else if (var.persistable())
      to.persistable.push_back(&var);
    else if ((use & (kRead | kFetched | kFed)) == 0 && use != 0 && IsParameterGradient(var, block))
      to.gradients.push_back(&var);
    else if (use == kRead || (use & kFed) != 0)
      to.inputs.push_back(&var);
    else if (var.type() == VarType::kLoDTensor && (use & output) != 0)
      to.outputs.push_back(&var);
    else if (!plain)
      to.settings.push_back(&var);
    else if (use == 0)
      to.unused.push_back(&var);
    else if (options_.keep_var)
      to.others.push_back(&var);
  }
  return to;
}

void PutArgs(Buffer& out, const std::vector<std::string>& args, const BlockDesc* types) {
  if (args.size() != 1) Put(out, "[");
  for (size_t i = 0; i < args.size(); ++i) {
    if (i > 0) Put(out, ", ");
    PutName(out, args[i]);
    const VarDesc* var = types ? types->FindVarRecursive(args[i]) : nullptr;
    if (!var) continue;
    Put(out, ":");
    PutMeta(out, var->meta());
  }
  if (args.size() != 1) Put(out, "]");
}

bool HoldsNothing(const Slot& slot) {
  return std::all_of(slot.args.begin(), slot.args.end(),
                     [](const std::string& name) { return IsEmptyName(name); });
}

void PutOutputs(Buffer& out, const OpDesc& op, const PrintOptions& options) {
  std::vector<const Slot*> shown;
  for (const Slot& slot : op.outputs()) {
    if (HoldsNothing(slot) || (options.hide_output && options.hide_output(op, slot))) continue;
    shown.push_back(&slot);
  }
  const bool named = shown.size() > 1 || options.name_all_outputs;
  for (size_t i = 0; i < shown.size(); ++i) {
    if (i > 0) Put(out, ", ");
    if (named) {
      PutName(out, shown[i]->name);
      Put(out, "=");
    }
    PutArgs(out, shown[i]->args, op.block());
  }
  if (!shown.empty()) Put(out, " = ");
}

void PutOp(Buffer& out, const OpDesc& op, const PrintOptions& options) {
  PutOutputs(out, op, options);
  PutName(out, op.type());
  Put(out, "(");
  bool first = true;
  for (const Slot& slot : op.inputs()) {
    if (HoldsNothing(slot)) continue;
    if (!first) Put(out, ", ");
    first = false;
    PutName(out, slot.name);
    Put(out, "=");
    PutArgs(out, slot.args, nullptr);
  }
  Put(out, ")");
  first = true;
  for (const NamedAttr& attr : op.attrs()) {
    if (IsBookkeepingAttr(attr.name) || (options.hide_attr && options.hide_attr(op, attr)))
      continue;
    Put(out, first ? " {" : ", ");
    first = false;
    PutName(out, attr.name);
    Put(out, "=");
    Put(out, AttrText(attr.value));
  }
  if (!first) Put(out, "}");
}

void Printer::PutOps(const BlockDesc& block) {
  bool any = false;
  TrainingStage section = TrainingStage::kForward;
  const int width = static_cast<int>(std::to_string(block.NumOps()).size());
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    if (options_.keep_op && !options_.keep_op(op)) continue;
    if (!any) Put(out_, "  ops\n");
    const TrainingStage stage = StageOf(op), now = SectionOf(stage);
    if (now != section) Format("  -- {} --\n", ToString(now));
    section = now;
    any = true;
    Format("    {:>{}}  ", i, width);
    PutOp(out_, op, options_);
    if (stage != now && stage != TrainingStage::kUpdate) Format("  # {}", ToString(stage));
    Put(out_, "\n");
  }
}

}  // namespace

std::string PrintProgram(const ProgramDesc& program, const PrintOptions& options) {
  return Printer(program, options).Run();
}

std::string PrintOp(const OpDesc& op, const PrintOptions& options) {
  Buffer out;
  PutOp(out, op, options);
  return fmt::to_string(out);
}

}  // namespace coracle
