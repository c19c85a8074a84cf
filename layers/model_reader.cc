#include <coracle/framework/base/file.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/internal/model_reader.h>
#include <coracle/layers/internal/text_index.h>
#include <coracle/layers/internal/text_settings.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>

namespace coracle {
namespace {

using google::protobuf::FieldDescriptor;

constexpr int64_t kMaxEntries = 100'000;  // counted after repeats and includes
constexpr size_t kMaxVars = 500'000;      // in all blocks of the main program
constexpr int kMaxDepth = 64;             // nesting of repeats and includes

// Builds the programs during a walk through the entries.
class Reader {
 public:
  Reader(const TextSchema& schema, const OpRegistry& ops, const ModelState& state,
         BuiltModel& model)
      : schema_(schema), state_(state), model_(model), net_(model.main, model.startup, ops) {}

  // `path` is "" for a text outside a file.
  void Read(const TextFile& file, const std::string& path) {
    if (!path.empty()) open_paths_.push_back(path);
    Node root(file);
    if (model_.name.empty()) model_.name = root.String("name");
    for (int i = 0; i < root.Count("data"); ++i) {
      Node data = root.Child("data", i);
      if (!skipping_ && Includes(data, state_, &model_.has_rules))
        Located(data, [&] { ReadData(data); });
    }
    ReadEntries(root);
    if (!path.empty()) open_paths_.pop_back();
  }

 private:
  std::string Expand(const std::string& text, const std::string& where) const {
    return ExpandIndices(text, indices_, where);
  }
  std::string String(const Node& node, const char* name) const {
    return Expand(node.String(name), node.Where(name));
  }

  Attribute Value(const Node& node, const FieldDescriptor& field, AttrType type) const {
    return node.Attr(field, type, [this](const std::string& text, const std::string& where) {
      return Expand(text, where);
    });
  }
  std::vector<std::string> Outputs(const Node& node) const {
    const FieldDescriptor& field = node.Field("output");
    std::vector<std::string> names;
    for (int i = 0; i < node.Count(field); ++i)
      names.push_back(Expand(node.String(field, i), node.Where(field, i)));
    return names;
  }

  void SetSite(const std::string& where) { net_.SetSite(where, Join(rounds_, ", ")); }

  void Count(const Node& node) {
    CheckTimeLimit("building the model");
    if (++entries_ > kMaxEntries) {
      node.Fail(fmt::format("the text makes more than {} entries", kMaxEntries));
    }
  }

  void ReadEntries(const Node& parent) {
    for (int i = 0; i < parent.Count("layer"); ++i) {
      Node entry = parent.Child("layer", i);
      Count(entry);
      const FieldDescriptor* kind = entry.Kind();
      if (!kind) entry.Fail("layer: the entry is empty; name a layer, op, include or repeat");
      const bool skipping = skipping_;
      skipping_ = !Includes(entry, state_, &model_.has_rules) || skipping;
      ReadEntry(entry, *kind);
      CountVars(entry);
      skipping_ = skipping;
    }
  }

  // An entry adds variables to its block, to the root (parameters) and to blocks that it makes.
  void CountVars(const Node& entry) {
    const ProgramDesc& main = model_.main;
    auto recount = [&](int b) {
      size_t& counted = vars_of_block_[static_cast<size_t>(b)];
      vars_ += main.Block(b).NumVars() - counted;
      counted = main.Block(b).NumVars();
    };
    const auto known = static_cast<int>(vars_of_block_.size());
    vars_of_block_.resize(static_cast<size_t>(main.NumBlocks()), 0);
    for (int b = known; b < main.NumBlocks(); ++b) recount(b);
    recount(0);
    recount(net_.block().idx());
    if (vars_ > kMaxVars) {
      entry.Fail(fmt::format(
          "the model has more than {} variables, counting parameters and all blocks", kMaxVars));
    }
  }

  // A layer that only another state includes uses up its number here too, so that later layers have
  // the same names in all states.
  void Skip(const Node& node, const std::string& kind, const LayerDef* layer) {
    if (layer) {
      if (!node.Has("name")) model_.main.UniqueName(layer->name);
      return;
    }
    if (kind == "op") return;
    Deeper(node.where());
    if (kind != "cond" && kind != "switch") ReadEntries(node);
    for (const char* side : {"then", "otherwise", "case", "default"}) {
      if (!node.type().FindFieldByName(side)) continue;
      for (int i = 0; i < node.Count(side); ++i) ReadEntries(node.Child(side, i));
    }
    --depth_;
  }

  void ReadEntry(const Node& entry, const FieldDescriptor& kind) {
    if (kind.name() == "include") return ReadInclude(entry);
    Node node = entry.Child(kind);
    if (skipping_ && kind.name() != "repeat") {
      Skip(node, kind.name(), schema_.Layer(kind.index()));
    } else if (const LayerDef* layer = schema_.Layer(kind.index())) {
      Located(node, [&] { ReadLayer(node, *layer); });
    } else if (kind.name() == "repeat") {
      ReadRepeat(node);
    } else if (kind.name() == "op") {
      ReadOp(node);
    } else {
      Deeper(node.where());
      Located(node, [&] { ReadControlFlow(node, kind.name()); });
      --depth_;
    }
  }

  // --- entries that contain entries ---

  void ReadControlFlow(const Node& node, const std::string& kind) {
    SetSite(node.where());
    if (kind == "while") {
      While(net_, FindIn(node, "condition"), BodyOf(node), {.is_test = node.Bool("is_test")});
    } else if (kind == "if") {
      If(net_, FindIn(node, "condition"), BodyOf(node));
    } else if (kind == "cond") {
      ReadCond(node);
    } else if (kind == "switch") {
      ReadSwitch(node);
    } else {
      ReadStaticRnn(node);
    }
  }

  Variable FindIn(const Node& node, const char* field) {
    if (!node.Has(field)) node.Fail(fmt::format("{} is required", field));
    return Find(String(node, field), node.Where(field));
  }

  // Appends the layers of the node; the next op gets the place of `node`.
  std::function<void()> BodyOf(const Node& node) {
    return [this, &node] {
      ReadEntries(node);
      SetSite(node.where());
    };
  }

  void ReadCond(const Node& node) {
    const Variable pred = FindIn(node, "pred");
    auto branch = [&](const char* side) {
      return [this, &node, side] {
        std::vector<Variable> results;
        if (!node.Has(side)) return results;
        const Node body = node.Child(side);
        ReadEntries(body);
        SetSite(node.where());
        return FindAll(body, body.Field("result"));
      };
    };
    Cond(net_, pred, branch("then"), branch("otherwise"), Outputs(node));
  }

  void ReadSwitch(const Node& node) {
    Switch choice(net_);
    for (int i = 0; i < node.Count("case"); ++i) {
      const Node one = node.Child("case", i);
      choice.Case(FindIn(one, "condition"), BodyOf(one));
    }
    if (!node.Has("default")) return;
    const Node last = node.Child("default");
    choice.Default(BodyOf(last));
  }

  void ReadStaticRnn(const Node& node) {
    StaticRnnOptions options;
    options.reverse = node.Bool("reverse");
    if (node.Has("lengths")) options.lengths = FindIn(node, "lengths");
    StaticRnn rnn(net_, options);
    rnn.Step([&] {
      for (const Variable& sequence : FindAll(node, node.Field("step_input")))
        rnn.StepInput(sequence);
      std::vector<Variable> memories;
      for (int i = 0; i < node.Count("memory"); ++i) {
        const Node memory = node.Child("memory", i);
        if (!memory.Has("name")) memory.Fail("memory: name is required");
        memories.push_back(rnn.Memory(FindIn(memory, "init"), String(memory, "name")));
      }
      ReadEntries(node);
      SetSite(node.where());
      for (size_t i = 0; i < memories.size(); ++i) {
        const Node memory = node.Child("memory", static_cast<int>(i));
        rnn.UpdateMemory(memories[i], FindIn(memory, "next"));
      }
      for (int i = 0; i < node.Count("step_output"); ++i) {
        const Node output = node.Child("step_output", i);
        if (!output.Has("output")) output.Fail("step_output: output is required");
        rnn.StepOutput(FindIn(output, "var"), String(output, "output"));
      }
    });
  }

  // --- include and repeat ---

  void ReadInclude(const Node& entry) {
    const std::string where = entry.Where("include");
    const std::string name = String(entry, "include");
    if (name.empty()) throw LocatedError(where, "include: a path is required");
    if (std::filesystem::path(name).is_absolute()) {
      throw LocatedError(where, fmt::format("include: the path must be relative to this text, got "
                                            "{}",
                                            Quote(name)));
    }
    Deeper(where);
    const std::string path = entry.file().directory + "/" + name;
    std::string& canonical = canonical_[path];
    if (canonical.empty()) canonical = CanonicalPath(path);
    if (std::find(open_paths_.begin(), open_paths_.end(), canonical) != open_paths_.end()) {
      throw LocatedError(where, fmt::format("include: {} includes itself", Quote(name)));
    }
    rounds_.push_back("included from " + where);
    try {
      Read(Included(path, canonical), canonical);
    } catch (const LocatedError& error) {
      throw LocatedError(error.WithDetail("included from " + where));
    } catch (const Error& error) {
      throw LocatedError(error.WithPrefix(where));
    }
    rounds_.pop_back();
    --depth_;
  }

  const TextFile& Included(const std::string& path, const std::string& canonical) {
    auto& file = files_[canonical];
    if (!file) {
      std::string shown = std::filesystem::path(path).lexically_normal().string();
      file = ParseText(schema_, ReadFile(path, kMaxModelTextBytes), shown, DirectoryOf(path));
    }
    return *file;
  }

  void ReadRepeat(const Node& node) {
    if (!node.Has("times")) node.Fail("repeat: times is required");
    const int64_t times = node.Integer("times"), start = node.Integer("start");
    if (times < 0 || times > kMaxEntries) {
      throw LocatedError(node.Where("times"), fmt::format("repeat: times must lie in [0, {}], got "
                                                          "{}",
                                                          kMaxEntries, times));
    }
    if (std::abs(static_cast<double>(start)) > 1e12) {
      throw LocatedError(node.Where("start"),
                         fmt::format("repeat: start must lie in [-1e12, 1e12], got {}", start));
    }
    const std::string index = node.String("index");
    bool name = !index.empty() && std::all_of(index.begin(), index.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_';
    });
    if (!name) {
      throw LocatedError(node.Where("index"),
                         fmt::format("repeat: index must be a name, got {}", Quote(index)));
    }
    Deeper(node.where());
    indices_.push_back({index, 0});
    rounds_.emplace_back();
    for (int64_t i = 0; i < times; ++i) {
      Count(node);
      indices_.back().value = start + i;
      rounds_.back() = fmt::format("{} = {}", index, start + i);
      try {
        ReadEntries(node);
      } catch (const LocatedError& error) {
        throw LocatedError(error.WithDetail(
            fmt::format("repeated from {}, with {} = {}", node.where(), index, start + i)));
      }
    }
    indices_.pop_back();
    rounds_.pop_back();
    --depth_;
  }

  void Deeper(const std::string& where) {
    if (++depth_ > kMaxDepth) {
      throw LocatedError(
          where, fmt::format("repeats and includes are nested deeper than {} levels", kMaxDepth));
    }
  }

  // --- variables ---

  Variable Find(const std::string& name, const std::string& where) {
    if (net_.block().FindVarRecursive(name)) return net_.Var(name);
    std::vector<std::string> names;
    for (size_t i = 0; i < net_.block().NumVars(); ++i) names.push_back(net_.block().var(i).name());
    throw LocatedError(Error(
        ErrorCode::kNotFound,
        fmt::format("{}: no variable {} so far{}", where, Quote(name), DidYouMean(name, names))));
  }

  std::vector<Variable> FindAll(const Node& node, const FieldDescriptor& field) {
    std::vector<Variable> vars;
    for (int i = 0; i < node.Count(field); ++i) {
      const std::string where = node.Where(field, i);
      vars.push_back(Find(Expand(node.String(field, i), where), where));
    }
    return vars;
  }

  void ReadData(const Node& node) {
    if (!node.Has("name")) node.Fail("data: name is required");
    SetSite(node.where());
    const FieldDescriptor& field = node.Field("shape");
    if (node.Count(field) > Shape::kMaxRank) {
      node.Fail(fmt::format("data: a shape has at most {} dims, got {}", Shape::kMaxRank,
                            node.Count(field)));
    }
    const Attribute shape = node.Value(field);
    auto dtype = static_cast<DType>(node.Integer("dtype"));
    if (!IsValid(dtype)) throw LocatedError(node.Where("dtype"), "data: dtype must be said");
    DataOptions options;
    options.lod_level = static_cast<int32_t>(node.Integer("lod_level"));
    options.stop_gradient = node.Bool("stop_gradient");
    if (node.Has("error_clip"))
      options.error_clip = ReadErrorClip(node.Child("error_clip"), schema_.pool());
    const std::string name = String(node, "name");
    net_.Data(name, Shape(std::get<std::vector<int64_t>>(shape)), dtype, options);
    model_.inputs.push_back(name);
  }

  // --- layers ---

  void ReadLayer(const Node& node, const LayerDef& layer) {
    LayerArgs args;
    for (const FieldDef& def : layer.fields) ReadField(node, layer, def, args);
    args.output.name = String(node, "name");
    if (layer.result == LayerDef::Result::kSeveral) {
      args.outputs = Outputs(node);
    } else {
      args.output.output = String(node, "output");
    }
    if (layer.result == LayerDef::Result::kOne) args.output.act = String(node, "act");
    if (layer.result != LayerDef::Result::kMetric) {
      if (node.Has("error_clip"))
        args.output.error_clip = ReadErrorClip(node.Child("error_clip"), schema_.pool());
      args.output.stop_gradient = node.Bool("stop_gradient");
    }
    SetSite(node.where());
    std::vector<Variable> results = layer.build(net_, args);
    if (layer.result == LayerDef::Result::kSeveral) {
      for (const Variable& result : results) Describe(result.desc(), args.output);
    }
  }

  static void Describe(VarDesc& var, const OutputOptions& options) {
    if (options.error_clip.get()) var.SetErrorClip(options.error_clip.get());
    if (options.stop_gradient) var.SetStopGradient(true);
  }

  static void CheckRange(const LayerDef& layer, const FieldDef& field, const Attribute& value) {
    const std::string wrong = field.range ? FieldTable::OutOfRange(*field.range, value) : "";
    if (!wrong.empty()) ThrowInvalid(fmt::format("{}: {} {}", layer.name, field.name, wrong));
  }

  void ReadField(const Node& node, const LayerDef& layer, const FieldDef& def, LayerArgs& args) {
    const FieldDescriptor& field = node.Field(def.name.c_str());
    const bool given = node.Count(field) > 0;
    if (def.required && !given) node.Fail(fmt::format("{}: {} is required", layer.name, def.name));
    switch (def.kind) {
      case FieldDef::Kind::kVar:
      case FieldDef::Kind::kVars:
        if (given) args.vars[def.name] = FindAll(node, field);
        break;
      case FieldDef::Kind::kParam:
        if (given) args.params[def.name] = ReadParam(node.Child(field), schema_.pool(), indices_);
        break;
      case FieldDef::Kind::kFile:
        if (given)
          args.attrs[def.name] =
              (std::filesystem::path(node.file().directory) / String(node, def.name.c_str()))
                  .string();
        break;
      default:
        if (given) {
          args.attrs[def.name] = Value(node, field, def.type);
          CheckRange(layer, def, args.attrs[def.name]);
        } else if (def.default_value) {
          args.attrs[def.name] = *def.default_value;
        }
    }
  }

  // --- raw ops ---

  void ReadOp(const Node& node) {
    const FieldDescriptor* kind = node.Kind();
    if (!kind) node.Fail("op: the entry is empty; name an op");
    const OpEntry& entry = *schema_.Op(kind->index());
    Node body = node.Child(*kind);
    SlotList inputs, outputs;
    AttrList attrs;
    for (int i = 0; i < body.type().field_count(); ++i) {
      const FieldDescriptor& field = *body.type().field(i);
      if (body.Count(field) == 0) continue;
      const OpField& target = entry.fields[static_cast<size_t>(i)];
      Attribute value = Value(body, field, target.type);
      if (target.kind == OpField::Kind::kAttr) {
        attrs.push_back({target.name, std::move(value)});
        continue;
      }
      auto names = std::get<std::vector<std::string>>(std::move(value));
      if (target.kind == OpField::Kind::kInput) {
        for (size_t k = 0; k < names.size(); ++k) {
          if (!IsEmptyName(names[k])) Find(names[k], body.Where(field, static_cast<int>(k)));
        }
      }
      (target.kind == OpField::Kind::kInput ? inputs : outputs).push_back({target.name, names});
    }
    AppendOp(node, body, entry, std::move(inputs), std::move(outputs), std::move(attrs));
  }

  // The fields of message Op that follow the ops.
  const FieldDescriptor& Common(const Node& node, int k) const {
    return *node.type().field(node.type().field_count() - 3 + k);
  }

  void AppendOp(const Node& node, const Node& body, const OpEntry& entry, SlotList inputs,
                SlotList outputs, AttrList attrs) {
    OutputOptions options;
    const FieldDescriptor &clip = Common(node, 0), &stop = Common(node, 1), &role = Common(node, 2);
    if (node.Count(clip)) options.error_clip = ReadErrorClip(node.Child(clip), schema_.pool());
    options.stop_gradient = node.Bool(stop.name().c_str());
    if (node.Count(role)) {
      attrs.push_back({kOpRoleAttr, static_cast<int32_t>(node.Integer(role.name().c_str()))});
    }
    SetSite(body.where());
    Located(body, [&] {
      OpDesc& op =
          net_.Append(entry.def->type, std::move(inputs), std::move(outputs), std::move(attrs));
      op.ForEachOutput([&](const std::string& name) { Describe(net_.Var(name).desc(), options); });
    });
  }

  const TextSchema& schema_;
  const StateToMatch state_;
  BuiltModel& model_;
  Builder net_;
  bool skipping_ = false;  // inside an entry that the state does not include
  std::vector<Index> indices_;
  // Paths of the enclosing includes.
  std::vector<std::string> open_paths_;
  std::map<std::string, std::string> canonical_;            // path as written -> canonical
  std::map<std::string, std::unique_ptr<TextFile>> files_;  // by canonical path
  // Rounds of the enclosing repeats and includes.
  std::vector<std::string> rounds_;
  int64_t entries_ = 0;
  std::vector<size_t> vars_of_block_;  // of the main program, at the last count
  size_t vars_ = 0;                    // their sum
  int depth_ = 0;
};

}  // namespace

std::string DirectoryOf(const std::string& path) {
  std::string directory = std::filesystem::path(path).parent_path().string();
  return directory.empty() ? "." : directory;
}

std::string CanonicalPath(const std::string& path) {
  std::error_code error;
  std::string canonical = std::filesystem::weakly_canonical(path, error).string();
  return error || canonical.empty() ? path : canonical;
}

void ReadModel(const TextSchema& schema, const OpRegistry& ops, const ModelState& state,
               const TextFile& file, const std::string& path, BuiltModel& model) {
  Reader(schema, ops, state, model).Read(file, path);
}

}  // namespace coracle
