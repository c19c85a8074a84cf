#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include "commands.h"

DEFINE_bool(names, false, "only the names, one per line");

namespace coracle::tools {
namespace {

// "C1:", the id of a constraint.
bool IsConstraintId(const std::string& word) {
  return word.size() >= 3 && word[0] == 'C' && word.back() == ':' &&
         word.find_first_not_of("0123456789", 1) == word.size() - 1;
}

// `text` broken at spaces into lines of at most 98 columns that begin with `indent` spaces.
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

// The doc's first sentence, cut to a column. ".. " ends none.
std::string Brief(const std::string& doc) {
  size_t end = doc.find(". ");
  while (end != doc.npos && end > 0 && doc[end - 1] == '.') end = doc.find(". ", end + 1);
  std::string text = end == doc.npos ? doc : doc.substr(0, end + 1);
  if (!text.empty() && text.back() == '.') text.pop_back();
  if (text.size() > 72) text.replace(69, text.npos, "...");
  return text;
}

std::string GradientOf(const OpSpec& def) {
  switch (def.gradient_kind) {
    case GradientKind::kRule:
      break;
    case GradientKind::kNotDifferentiable:
      return "none, its outputs count as constants: " + def.no_gradient_reason;
    case GradientKind::kNoRule:
      return "none: " + def.no_gradient_reason;
    case GradientKind::kForbidden:
      return "an error: " + def.no_gradient_reason;
  }
  const std::string grad = def.type + "_grad";
  if (!DefaultOps().Find(grad)) return "composed of other ops";
  return "by the op " + grad +
         (DefaultOps().Get(grad).HasGradient() ? ", which has a gradient itself" : "");
}

// Width of a column of names.
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
    std::string traits;
    if (slot.variadic)
      traits += slot.optional ? ", none or more" : ", one or more";
    else if (slot.optional)
      traits += ", optional";
    if (slot.intermediate) traits += ", intermediate";
    if (slot.no_gradient) traits += ", no gradient";
    text += fmt::format("  {:<{}}  {}{}\n", slot.name, NameWidth(slots), slot.doc,
                        traits.empty() ? "" : " (" + traits.substr(2) + ")");
  }
  return text;
}

std::string Attrs(const OpSpec& def) {
  if (def.attrs.empty()) return "";
  std::string text = "\nattributes\n";
  for (const AttrDef& attr : def.attrs) {
    text += fmt::format(
        "  {:<{}}  {:<8} {:<14} {}", attr.name, NameWidth(def.attrs), ToString(attr.type),
        attr.default_value ? "= " + ToString(*attr.default_value) : "required", attr.doc);
    if (attr.min) text += fmt::format(", at least {}", *attr.min);
    if (attr.max) text += fmt::format(", at most {}", *attr.max);
    if (!attr.one_of.empty()) text += fmt::format(", one of \"{}\"", Join(attr.one_of, "\", \""));
    text += "\n";
  }
  return text;
}

std::string Describe(const OpSpec& def) {
  std::string text = def.type + "\n" + Wrap(def.Documentation(), 2);
  text += Slots("inputs", def.inputs) + Slots("outputs", def.outputs) + Attrs(def);
  text += "\ngradient\n" + Wrap(GradientOf(def), 2);
  text += "\nkernels\n  ";
  text += !def.HasReferenceKernel() ? "none"
          : def.HasFastKernel()     ? "reference, fast"
                                    : "reference";
  text += "\n";
  std::vector<std::string> pairs;
  for (const auto& pair : def.inplace) pairs.push_back(pair.first + " and " + pair.second);
  if (!pairs.empty()) text += "\nmay share memory\n  " + Join(pairs, ", ") + "\n";
  return text;
}

int RunOps(const std::vector<std::string>& args) {
  RequireArgs(args, 0, 1, "at most one op");
  if (!args.empty()) {
    Print(Describe(DefaultOps().Get(args[0])));
    return 0;
  }
  std::string text;
  size_t width = 0, count = 0;
  for (const std::string& type : DefaultOps().Types()) {
    if (!type.ends_with("_grad")) width = std::max(width, type.size());
  }
  for (const std::string& type : DefaultOps().Types()) {
    const OpSpec& def = DefaultOps().Get(type);
    if (FLAGS_names) {
      text += type + "\n";
    } else if (!type.ends_with("_grad")) {
      ++count;
      text += fmt::format("{:<{}}  {:<8}  {}\n", type, width, def.HasGradient() ? "gradient" : "",
                          Brief(def.doc));
    }
  }
  if (!FLAGS_names) {
    text +=
        fmt::format("{} ops, and {} more that compute gradients; `coracle ops NAME` tells all\n",
                    count, DefaultOps().Types().size() - count);
  }
  Print(text);
  return 0;
}

}  // namespace

Command OpsCommand() {
  return {"ops",
          "lists the ops, or describes one",
          "ops [NAME] [--names]",
          "  coracle ops\n  coracle ops conv2d\n  coracle ops --names --op_library=./my_ops.so\n",
          {"names"},
          RunOps};
}

}  // namespace coracle::tools
