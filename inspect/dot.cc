#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/inspect.h>
#include <coracle/inspect/op_layers.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

using Stage = TrainingStage;

constexpr size_t kLongestName = 80;
constexpr size_t kShownParameters = 4;  // per op; also the limit for outputs
// Graphviz gives each edge label its own rank, and each long edge a node in every rank that it
// crosses. With labels on the edges from forward to backward ops of a training step of 250 ops, it
// runs for more than ten minutes.
constexpr size_t kMostLabelledRanks = 8000;
constexpr int kDeepest = 12;  // nested frames; a hostile program may nest without end

// The colour of a stage: forward blue, backward orange, update green, clipping red.
const char* ColorOf(Stage stage) {
  switch (stage) {
    case Stage::kForward:
    case Stage::kScaleLoss:
      return "#dbe9f8";
    case Stage::kBackward:
      return "#fde6c8";
    case Stage::kErrorClip:
    case Stage::kClip:
      return "#f8d2d0";
    case Stage::kSchedule:
    case Stage::kCommunicate:
      return "#e6e6e6";
    default:
      return "#d9efd3";
  }
}

// Escapes text for a label; invisible characters become \x1b.
std::string Html(std::string_view text) {
  const std::string quoted = Quote(text, kLongestName);
  std::string out;
  for (char c : std::string_view(quoted).substr(1, quoted.size() - 2)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out.empty() ? "&#39;&#39;" : out;  // Graphviz rejects empty tags
}

std::string Small(const std::string& html) {
  return "<font point-size=\"9\" color=\"#555555\">" + html + "</font>";
}

// A label with the name, and the type below it: "fc_0.tmp_0" and "float32[-1, 10]".
std::string VarLabel(const std::string& name, const VarDesc* var) {
  return Html(name) + (var ? "<br/>" + Small(Html(var->meta().ToString())) : "");
}

// Selects the ops to show.
class Selection {
 public:
  Selection(const ProgramDesc& program, const DotOptions& options) {
    if (options.block < -1 || options.block >= program.NumBlocks()) {
      throw Error(ErrorCode::kNotFound, fmt::format("no block {}: the program has {}",
                                                    options.block, program.NumBlocks()));
    }
    for (int i = 0; i < program.NumBlocks(); ++i) AddBlock(program.Block(i), options);
    if (!options.around.empty()) KeepNear(program, options);
  }

  bool Has(const OpDesc& op) const { return shown_.count(&op) > 0; }
  size_t size() const { return shown_.size(); }

 private:
  void AddBlock(const BlockDesc& block, const DotOptions& options) {
    if (options.block >= 0 && options.block != block.idx()) return;
    block.ForEachOp([&](const OpDesc& op) {
      const bool wanted = options.stages.empty() ||
                          std::find(options.stages.begin(), options.stages.end(), StageOf(op)) !=
                              options.stages.end();
      if (wanted) shown_.insert(&op);
    });
  }

  static bool Leads(const OpDesc& op, const std::string& name) {
    const VarDesc* var = op.block()->FindVarRecursive(name);
    return !var || !var->persistable();
  }

  // Visits each variable and each op only once.
  void KeepNear(const ProgramDesc& program, const DotOptions& options) {
    std::unordered_map<std::string_view, std::vector<const OpDesc*>> users;
    program.ForEachOp([&](const OpDesc& op) {
      const auto note = [&](const std::string& name) {
        if (name == options.around || Leads(op, name)) users[name].push_back(&op);
      };
      op.ForEachInput(note);
      op.ForEachOutput(note);
    });
    if (!users.count(options.around)) ThrowNoOpUses(program, options.around);
    std::unordered_set<std::string_view> visited = {options.around};
    std::unordered_set<const OpDesc*> near;
    std::vector<std::string_view> names = {options.around};
    for (int depth = 0; depth < options.depth && !names.empty(); ++depth) {
      std::vector<std::string_view> next;
      for (std::string_view name : names) {
        for (const OpDesc* op : users[name]) {
          if (!shown_.count(op) || !near.insert(op).second) continue;
          const auto note = [&](const std::string& other) {
            if (Leads(*op, other) && visited.insert(other).second) next.emplace_back(other);
          };
          op->ForEachInput(note);
          op->ForEachOutput(note);
        }
      }
      names = std::move(next);
    }
    shown_ = std::move(near);
  }

  [[noreturn]] static void ThrowNoOpUses(const ProgramDesc& program, const std::string& name) {
    std::vector<std::string> known;
    bool declared = false;
    for (int b = 0; b < program.NumBlocks(); ++b) {
      for (size_t i = 0; i < program.Block(b).NumVars(); ++i) {
        known.push_back(program.Block(b).var(i).name());
        declared |= known.back() == name;
      }
    }
    throw Error(ErrorCode::kNotFound, declared
                                          ? fmt::format("no op writes or reads {}", Quote(name))
                                          : fmt::format("the program has no variable {}{}",
                                                        Quote(name), DidYouMean(name, known)));
  }

  std::unordered_set<const OpDesc*> shown_;
};

size_t Index(int block) { return static_cast<size_t>(block); }

std::string NodeOf(const OpDesc& op) {
  return fmt::format("b{}_{}", op.block()->idx(), op.block()->IndexOf(op));
}

// The frames of blocks. `parent`: the block in whose frame the block's frame is drawn, or -1;
// `inner`: the blocks in the frame of each block; `runner`: the first op that runs each block.
struct Frames {
  std::vector<int> parent;
  std::vector<std::vector<int>> inner;
  std::unordered_map<int, const OpDesc*> runner;
};

// A file may contain any indices, so a block can only be inside one with a lower index.
Frames FindFrames(const ProgramDesc& program) {
  Frames frames;
  const int blocks = program.NumBlocks();
  frames.parent.assign(Index(blocks), -1);
  frames.inner.resize(Index(blocks));
  std::vector<int> depth(Index(blocks), 0);
  for (int i = 0; i < blocks; ++i) {
    int parent = program.Block(i).parent_idx();
    if (parent < 0 || parent >= i) continue;
    while (depth[Index(parent)] >= kDeepest) parent = frames.parent[Index(parent)];
    frames.parent[Index(i)] = parent;
    depth[Index(i)] = depth[Index(parent)] + 1;
    frames.inner[Index(parent)].push_back(i);
  }
  program.ForEachOp([&](const OpDesc& op) {
    for (int sub : op.SubBlocks()) frames.runner.try_emplace(sub, &op);
  });
  return frames;
}

// Adds the first lines and the number of further ones.
void PutLines(const std::vector<std::string>& lines, std::string* label) {
  for (size_t i = 0; i < std::min(lines.size(), kShownParameters); ++i)
    *label += "<br/>" + Small(lines[i]);
  if (lines.size() > kShownParameters)
    *label += "<br/>" + Small(fmt::format("... {} more", lines.size() - kShownParameters));
}

// The op of `block` before position `end` that wrote the variable last; nullptr if there is none.
const OpDesc* LastWriter(const BlockDesc& block, std::string_view name, size_t end) {
  const auto writers = block.Uses(name).writers;
  const auto after = std::partition_point(
      writers.begin(), writers.end(), [&](const OpDesc* op) { return block.IndexOf(*op) < end; });
  return after == writers.begin() ? nullptr : *(after - 1);
}

// The writer in the op's block, or else in an outer block before the op that runs the inner one.
const OpDesc* WriterFor(const OpDesc& op, std::string_view name, const Frames& frames) {
  const OpDesc* at = &op;
  for (int depth = 0; depth < 100; ++depth) {
    const BlockDesc& block = *at->block();
    if (const OpDesc* writer = LastWriter(block, name, block.IndexOf(*at))) return writer;
    const auto runner = frames.runner.find(block.idx());
    if (block.idx() <= 0 || runner == frames.runner.end() || block.FindVar(name)) return nullptr;
    at = runner->second;
  }
  return nullptr;
}

// An upper bound of the ranks that all edges cross: the ops between writers and readers.
size_t RanksCrossed(const ProgramDesc& program, const Selection& shown, const Frames& frames) {
  size_t ranks = 0;
  program.ForEachOp([&](const OpDesc& op) {
    if (!shown.Has(op)) return;
    op.ForEachInput([&](const std::string& name) {
      const OpDesc* writer = WriterFor(op, name, frames);
      if (!writer || !shown.Has(*writer) || writer->block() != op.block()) return;
      ranks += op.block()->IndexOf(op) - op.block()->IndexOf(*writer);
    });
  });
  return ranks;
}

class DotWriter {
 public:
  DotWriter(const ProgramDesc& program, const OpRegistry& ops, const DotOptions& options)
      : program_(program),
        ops_(ops),
        shown_(program, options),
        layers_(program),
        frames_(FindFrames(program)) {}

  std::string Run() {
    out_ =
        "digraph program {\n"
        "  compound=true; ranksep=0.4; nodesep=0.25;\n"
        "  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=12, "
        "color=\"#777777\"];\n"
        "  edge [fontname=\"Helvetica\", fontsize=9, color=\"#777777\", arrowsize=0.6];\n";
    labels_on_edges_ = RanksCrossed(program_, shown_, frames_) <= kMostLabelledRanks;
    if (!labels_on_edges_) out_ += "  nslimit=2; nslimit1=2; mclimit=0.3;\n";
    for (int i = 0; i < program_.NumBlocks(); ++i) {
      if (frames_.parent[Index(i)] < 0) PutBlock(program_.Block(i), 1);
    }
    PutResults();
    return out_ + edges_ + "}\n";
  }

 private:
  void PutBlock(const BlockDesc& block, int depth) {
    const std::string indent(2 * static_cast<size_t>(depth), ' ');
    const bool framed = block.idx() > 0;
    const size_t start = out_.size();
    if (framed) {
      out_ += fmt::format(
          "{0}subgraph cluster_{1} {{\n{0}  label=\"block {1}\"; fontname=\"Helvetica\"; "
          "fontsize=10; style=\"rounded,dashed\"; color=\"#999999\";\n",
          indent, block.idx());
    }
    const size_t head = out_.size();
    std::string first;
    for (size_t i = 0; i < block.NumOps(); ++i) {
      if (!shown_.Has(block.op(i))) continue;
      if (first.empty()) first = NodeOf(block.op(i));
      PutOp(block.op(i), StageOf(block.op(i)), indent + (framed ? "  " : ""));
    }
    PutRunner(block, first);
    for (int inner : frames_.inner[Index(block.idx())])
      PutBlock(program_.Block(inner), depth + (framed ? 1 : 0));
    if (!framed) return;
    if (out_.size() == head)
      out_.resize(start);  // the block shows no ops
    else
      out_ += indent + "}\n";
  }

  // Connects the op that runs the block to its frame.
  void PutRunner(const BlockDesc& block, const std::string& first) {
    const auto runner = frames_.runner.find(block.idx());
    if (block.idx() <= 0 || first.empty() || runner == frames_.runner.end()) return;
    if (!shown_.Has(*runner->second)) return;
    edges_ += fmt::format("  {} -> {} [style=dotted, arrowhead=none, lhead=cluster_{}];\n",
                          NodeOf(*runner->second), first, block.idx());
  }

  void PutOp(const OpDesc& op, Stage stage, const std::string& indent) {
    const std::string node = NodeOf(op);
    std::vector<std::string> parameters;
    std::unordered_set<std::string_view> seen;
    op.ForEachInput([&](const std::string& name, const std::string& slot) {
      if (seen.insert(name).second) PutInput(op, node, name, slot, &parameters);
    });
    const OpSpec* def = ops_.Find(op.type());
    const bool is_end = def && def->kind != OpKind::kCompute;
    out_ += fmt::format("{}{} [label=<{}>, {}fillcolor=\"{}\"];\n", indent, node,
                        OpLabel(op, parameters), is_end ? "shape=ellipse, " : "", ColorOf(stage));
  }

  std::string OpLabel(const OpDesc& op, const std::vector<std::string>& parameters) const {
    std::string label = "<b>" + Html(op.type()) + "</b>";
    if (const ModelLayer* layer = layers_.Find(op)) {
      label +=
          "<br/>" + Small(Html(layer->name + (layer->round.empty() ? "" : ", ") + layer->round));
    }
    PutLines(parameters, &label);
    if (labels_on_edges_) return label;
    std::vector<std::string> outputs;
    op.ForEachOutput([&](const std::string& name) {
      const VarDesc* var = op.block()->FindVarRecursive(name);
      outputs.push_back("&#8594; " + Html(name) + (var ? " " + Html(var->meta().ToString()) : ""));
    });
    PutLines(outputs, &label);
    return label;
  }

  void PutInput(const OpDesc& op, const std::string& node, const std::string& name,
                const std::string& slot, std::vector<std::string>* parameters) {
    const VarDesc* var = op.block()->FindVarRecursive(name);
    const OpDesc* writer = WriterFor(op, name, frames_);
    if (!writer && var && var->type() == VarType::kFeedMinibatch) return;
    if (!writer && var && var->persistable()) {
      parameters->push_back(Html(slot) + ": " + Html(name) + " " + Html(var->meta().ToString()));
      return;
    }
    const std::string from =
        writer && shown_.Has(*writer) ? NodeOf(*writer) : VarNode(name, var, writer != nullptr);
    // An ellipse already shows the name.
    const bool labelled = labels_on_edges_ && from[0] != 'v';
    const std::string label = !labelled ? "" : " [label=<" + VarLabel(name, var) + ">]";
    edges_ += fmt::format("  {} -> {}{};\n", from, node, label);
  }

  // The ellipse of a variable that no shown op writes.
  std::string VarNode(const std::string& name, const VarDesc* var, bool left_out) {
    const std::string key = name + (left_out ? "\n1" : "\n0");
    const auto [place, added] = var_nodes_.try_emplace(key, var_nodes_.size());
    const std::string node = fmt::format("v{}", place->second);
    if (added) {
      edges_ += fmt::format("  {} [label=<{}>, shape=ellipse, style={}, fillcolor=\"#ffffff\"];\n",
                            node, VarLabel(name, var), left_out ? "dashed" : "filled");
    }
    return node;
  }

  // Adds the results of a program without fetch ops.
  void PutResults() {
    const BlockDesc& root = program_.Root();
    if (HasOpOfKind(root, OpKind::kFetch, ops_)) return;
    for (const std::string& name : OutputNames(program_, ops_)) {
      const OpDesc* writer = LastWriter(root, name, root.NumOps());
      if (!writer || !shown_.Has(*writer)) continue;
      const std::string from = NodeOf(*writer);
      // VarNode adds the ellipse's line to edges_ before this appends the edge.
      edges_ += fmt::format("  {} -> {};\n", from, VarNode(name, root.FindVar(name), false));
    }
  }

  const ProgramDesc& program_;
  const OpRegistry& ops_;
  const Selection shown_;
  const OpLayers layers_;
  const Frames frames_;
  std::unordered_map<std::string, size_t> var_nodes_;
  bool labels_on_edges_ = true;
  std::string out_, edges_;
};

}  // namespace

std::string ProgramDot(const ProgramDesc& program, const OpRegistry& ops,
                       const DotOptions& options) {
  return DotWriter(program, ops, options).Run();
}

size_t OpsInDot(const ProgramDesc& program, const DotOptions& options) {
  return Selection(program, options).size();
}

TrainingStage StageFromText(const std::string& name) {
  std::string wanted = name;
  std::replace_if(
      wanted.begin(), wanted.end(), [](char c) { return c == '_' || c == '-'; }, ' ');
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(Stage::kCommunicate); ++i) {
    const auto stage = static_cast<Stage>(i);
    std::string known = ToString(stage);
    std::replace(known.begin(), known.end(), '-', ' ');
    if (known == wanted) return stage;
    names.emplace_back(ToString(stage));
  }
  throw Error(ErrorCode::kNotFound, fmt::format("unknown stage {}{}; stages are {}", Quote(name),
                                                DidYouMean(name, names), Join(names, ", ")));
}

}  // namespace coracle
