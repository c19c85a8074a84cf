#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <coracle/inspect/json.h>
#include <coracle/inspect/op_text.h>
#include <coracle/layers/layer.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/needed_ops.h>
#include <coracle/tools/op_pages.h>
#include <coracle/tools/op_use.h>
#include <coracle/tools/program_input.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::tools {
namespace {

struct OpsFlags {
  bool all = false;
  bool names = false;
  bool json = false;
  bool markdown = false;
  bool needed = false;
  std::string out = {};
};

Fields<OpsFlags> OpsFields() {
  return Fields<OpsFlags>("")
      .Add("all", &OpsFlags::all, "also list gradient ops and refused types")
      .Add("names", &OpsFlags::names, "print only the names, one per line")
      .Add("json", &OpsFlags::json, "print JSON")
      .Add("needed", &OpsFlags::needed,
           "print the ops that PROGRAMs and their gradients need, for builds with these alone")
      .Add("markdown", &OpsFlags::markdown, "write the pages of docs/ops")
      .Add("out", &OpsFlags::out, "`DIR` for the pages of --markdown");
}

// Whether a word is the id of a constraint, such as "C1:".
bool IsConstraintId(const std::string& word) {
  return word.size() >= 3 && word[0] == 'C' && word.back() == ':' &&
         word.find_first_not_of("0123456789", 1) == word.size() - 1;
}

// Breaks `text` at spaces into lines of at most 98 columns, indented by `indent` spaces.
std::string Wrap(const std::string& text, size_t indent) {
  std::string out, line(indent, ' ');
  for (const std::string& word : Split(text, ' ')) {
    const bool full = line.size() + 1 + word.size() > 98;
    if (line.size() > indent && (full || IsConstraintId(word))) {
      out += line + "\n";
      line = std::string(indent, ' ');
    }
    if (line.size() > indent) line += ' ';
    line += word;
  }
  return out + line + "\n";
}

// The width of a column of names.
template <class Defs>
size_t NameWidth(const Defs& defs) {
  size_t width = 12;
  for (const auto& def : defs) width = std::max(width, def.name.size());
  return width;
}

std::string Slots(const char* title, const std::vector<SlotDef>& slots) {
  if (slots.empty()) return "";
  std::string text = fmt::format("\n{}\n", title);
  for (const SlotDef& slot : slots) {
    const std::string traits = SlotTraits(slot);
    text += fmt::format("  {:<{}}  {}{}\n", slot.name, NameWidth(slots), slot.doc,
                        traits.empty() ? "" : " (" + traits + ")");
  }
  return text;
}

std::string Attrs(const OpSpec& def) {
  if (def.attrs.empty()) return "";
  std::string text = "\nattributes\n";
  for (const AttrDef& attr : def.attrs) {
    text += fmt::format("  {:<{}}  {:<8} {:<14} {}{}\n", attr.name, NameWidth(def.attrs),
                        ToString(attr.type),
                        attr.default_value ? "= " + ToString(*attr.default_value) : "required",
                        attr.doc, AttrLimits(attr));
  }
  return text;
}

std::string Paragraph(const char* title, const std::string& text) {
  return text.empty() ? "" : fmt::format("\n{}\n", title) + Wrap(text, 2);
}

std::string Describe(const OpSpec& def) {
  std::string text = def.type + "\n" + Wrap(def.Documentation(), 2);
  text += Slots("inputs", def.inputs) + Slots("outputs", def.outputs) + Attrs(def);
  text += Paragraph("gradient", GradientText(def)) + Paragraph("LoD", LodText(def)) +
          Paragraph("rows", RowsText(def));
  text += Paragraph("scores of classes", Join(def.score_slots, ", ")) +
          Paragraph("soft labels", SoftLabelsText(def));
  text += Paragraph("elements", DTypesText(def)) + Paragraph("kernels", KernelsText(def));
  return text + Paragraph("may share memory", InplaceText(def));
}

Json JsonOf(const std::vector<SlotDef>& slots) {
  Json list = Json::array();
  for (const SlotDef& slot : slots) {
    list.push_back({{"name", slot.name},
                    {"doc", slot.doc},
                    {"optional", slot.optional},
                    {"list", slot.variadic}});
  }
  return list;
}

Json JsonOf(const std::vector<AttrDef>& attrs) {
  Json list = Json::array();
  for (const AttrDef& attr : attrs) {
    Json entry = {{"name", attr.name}, {"type", ToString(attr.type)}, {"doc", attr.doc}};
    if (attr.default_value) entry["default"] = ToString(*attr.default_value);
    if (attr.min) entry["min"] = *attr.min;
    if (attr.max) entry["max"] = *attr.max;
    if (!attr.one_of.empty()) entry["one_of"] = attr.one_of;
    list.push_back(std::move(entry));
  }
  return list;
}

Json JsonOf(const OpSpec& def) {
  Json constraints = Json::object();
  for (const ConstraintDef& constraint : def.constraints)
    constraints[constraint.id] = constraint.text;
  return {{"type", def.type},
          {"doc", def.doc},
          {"constraints", constraints},
          {"inputs", JsonOf(def.inputs)},
          {"outputs", JsonOf(def.outputs)},
          {"attrs", JsonOf(def.attrs)},
          {"gradient", GradientText(def)},
          {"has_gradient", def.HasGradient()},
          {"lod", LodText(def)},
          {"rows", RowsText(def)},
          {"scores", def.score_slots},
          {"soft_labels", SoftLabelsText(def)},
          {"elements", DTypesText(def)},
          {"fast", def.HasFastKernel()}};
}

// Makes a JSON document with these members.
std::string ToText(const std::string& kind, const Json& members) {
  Json document = JsonDocument(kind);
  document.update(members);
  return JsonText(document);
}

std::string JsonOfAll() {
  Json ops = Json::array(), refused = Json::array();
  for (const std::string& type : DefaultOps().Types())
    ops.push_back(JsonOf(DefaultOps().Get(type)));
  for (const RefusedOp& op : RefusedOps()) {
    if (!DefaultOps().Find(op.type)) refused.push_back({{"type", op.type}, {"reason", op.reason}});
  }
  return ToText("ops", {{"ops", ops}, {"refused", refused}});
}

std::string Names() {
  std::string text;
  for (const std::string& type : DefaultOps().Types()) text += type + "\n";
  return text;
}

// The list of ops. With --all, it includes gradient ops and refused types.
std::string List(const OpsFlags& flags) {
  const std::vector<std::string> types = DefaultOps().Types();
  const auto shown = [&](const std::string& type) { return flags.all || !type.ends_with("_grad"); };
  size_t width = 0, count = 0;
  for (const std::string& type : types) width = std::max(width, shown(type) ? type.size() : 0);
  std::string text;
  for (const std::string& type : types) {
    if (!shown(type)) continue;
    ++count;
    const OpSpec& def = DefaultOps().Get(type);
    text += fmt::format("{:<{}}  {:<8}  {}\n", type, width, def.HasGradient() ? "gradient" : "",
                        Brief(def.doc, BriefWidth()));
  }
  if (!flags.all) {
    return text + fmt::format(
                      "{} ops, and {} more that compute gradients; `coracle ops NAME` "
                      "describes one\n",
                      count, types.size() - count);
  }
  for (const RefusedOp& op : RefusedOps()) {
    if (!DefaultOps().Find(op.type))
      text += fmt::format("{:<{}}  {:<8}  {}\n", op.type, width, "refused", op.reason);
  }
  return text;
}

int WritePages(const OpsFlags& flags) {
  if (flags.out.empty()) throw UsageError("--markdown needs --out=DIR");
  RequireDirectoryName("--out", flags.out);
  MakeDirectories(flags.out);
  for (const auto& [name, text] : OpPages()) WriteFileAtomic(flags.out + "/" + name, text);
  return 0;
}

// Whether the argument is a program, not the name of an op.
bool IsProgram(const std::string& arg) {
  if (DefaultOps().Find(arg) || FindRefusedOp(arg)) return false;
  return arg.find_first_of("./-") != arg.npos || FileExists(arg) || IsDirectory(arg);
}

bool IsLayer(const std::string& name) {
  const std::vector<std::string> names = LayerNames(DefaultOps());
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A hint for an op's name that is also a layer's name.
std::string LayerHint(const std::string& name) {
  if (!IsLayer(name)) return "";
  return fmt::format("\n{} is also a layer of model text: `coracle layers {}`\n", name, name);
}

const OpSpec& RequireOp(const std::string& name) {
  if (!DefaultOps().Find(name) && !FindRefusedOp(name) && IsLayer(name)) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{} is a layer of model text, not an op: `coracle layers {}` describes "
                            "it",
                            name, name));
  }
  return DefaultOps().Get(name);
}

int PrintNeeded(const Args& args, const OpsFlags& flags) {
  RequireArgs(args, 1, SIZE_MAX, "one or more PROGRAMs with --needed");
  NeededOps needed;
  for (const std::string& path : args) {
    const ProgramDesc program = ReadAnyProgram(path);
    Scope scope;
    const std::string params = ParametersNextTo(ProgramFile(path), program);
    if (!params.empty()) ReadParameters(program, params, scope);
    AddNeededOps(program, std::move(scope), path, &needed);
  }
  for (const std::string& why : needed.without_gradients)
    LogMessage(MessageLevel::kWarning, "no gradients " + why);
  flags.json ? PrintData(JsonOfNeededOps(needed)) : Print(TextOfNeededOps(needed));
  return 0;
}

int RunOps(const Args& args, const OpsFlags& flags) {
  if (flags.needed) {
    if (flags.all || flags.names || flags.markdown || !flags.out.empty())
      throw UsageError("--needed goes with --json only");
    return PrintNeeded(args, flags);
  }
  RequireArgs(args, 0, 1, "at most one op or PROGRAM");
  if (flags.markdown) {
    RequireArgs(args, 0, 0, "no op with --markdown");
    return WritePages(flags);
  }
  if (!flags.out.empty()) throw UsageError("--out needs --markdown");
  if (flags.names && flags.json) throw UsageError("give one of --names and --json");
  const auto print = flags.json ? PrintData : Print;
  if (args.empty()) {
    print(flags.json ? JsonOfAll() : flags.names ? Names() : List(flags));
  } else if (IsProgram(args[0])) {
    const std::vector<OpUse> uses = UsesOf(ReadAnyProgram(args[0]), DefaultOps());
    print(flags.json ? JsonOfOps(uses) : TableOfOps(uses));
  } else {
    const OpSpec& def = RequireOp(args[0]);
    print(flags.json ? ToText("op", JsonOf(def)) : Describe(def) + LayerHint(args[0]));
  }
  return 0;
}

}  // namespace

Command OpsCommand() {
  return MakeCommand(
      {"ops", "lists the ops, describes one, or shows the support for the ops of a program",
       "ops [NAME | PROGRAM] [--all] [--names] [--json] [--needed PROGRAM...] [--markdown "
       "--out=DIR]",
       "  coracle ops\n  coracle ops conv2d\n  coracle ops inference.pdmodel --json\n"
       "  coracle ops --needed classifier.pdmodel detector.onnx --json > ops.json\n"
       "  coracle ops --names --op_library=./my_ops.so\n"},
      OpsFields(), RunOps);
}

}  // namespace coracle::tools
