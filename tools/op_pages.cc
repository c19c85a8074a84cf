#include <coracle/framework/base/text.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <coracle/inspect/op_text.h>
#include <coracle/operators/op_families.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/op_pages.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

constexpr const char* kMade =
    "Made from the declarations by `coracle ops --markdown --out=docs/ops`; do not edit.\n";

// Escapes text for Markdown, also for a cell of a table.
std::string Escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '|' || c == '*' || c == '<' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

bool IsGradientOp(const std::string& type) { return type.ends_with("_grad"); }

std::string Slots(const char* title, const std::vector<SlotDef>& slots) {
  if (slots.empty()) return "";
  std::string text = fmt::format("\n| {} | |\n|---|---|\n", title);
  for (const SlotDef& slot : slots) {
    const std::string traits = SlotTraits(slot);
    text += fmt::format("| `{}` | {}{} |\n", slot.name, Escape(slot.doc),
                        traits.empty() ? "" : " (" + traits + ")");
  }
  return text;
}

std::string Attrs(const std::vector<AttrDef>& attrs) {
  if (attrs.empty()) return "";
  std::string text = "\n| attribute | type | default | |\n|---|---|---|---|\n";
  for (const AttrDef& attr : attrs) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", attr.name, ToString(attr.type),
                        attr.default_value ? Escape(ToString(*attr.default_value)) : "required",
                        Escape(attr.doc + AttrLimits(attr)));
  }
  return text;
}

std::string Property(const char* name, const std::string& text) {
  return text.empty() ? "" : fmt::format("* {}: {}\n", name, Escape(text));
}

std::string Section(const OpSpec& def) {
  std::string text = fmt::format("\n## {}\n\n{}\n", def.type, Escape(def.doc));
  if (!def.constraints.empty()) text += "\n";
  for (const ConstraintDef& constraint : def.constraints)
    text += fmt::format("* {}: {}\n", constraint.id, Escape(constraint.text));
  text += Slots("input", def.inputs) + Slots("output", def.outputs) + Attrs(def.attrs) + "\n";
  return text + Property("gradient", GradientText(def)) + Property("LoD", LodText(def)) +
         Property("rows", RowsText(def)) +
         Property("scores of classes", Join(def.score_slots, ", ")) +
         Property("soft labels", SoftLabelsText(def)) + Property("elements", DTypesText(def)) +
         Property("kernels", KernelsText(def)) + Property("may share memory", InplaceText(def));
}

std::string FamilyPage(const OpFamily& family) {
  std::string text = fmt::format("# Operators: {}\n\n{}", family.name, kMade);
  std::string gradients;
  for (const std::string& type : family.types) {
    const OpSpec& def = DefaultOps().Get(type);
    if (IsGradientOp(type))
      gradients += fmt::format("| `{}` | {} |\n", type, Escape(def.Documentation()));
    else
      text += Section(def);
  }
  if (gradients.empty()) return text;
  return text +
         "\n## Gradient ops\n\nBackward appends these. `coracle ops NAME` explains one.\n\n"
         "| type | |\n|---|---|\n" +
         gradients;
}

// The row of a family: links to the sections of its page.
std::string FamilyRow(const OpFamily& family) {
  std::vector<std::string> links;
  for (const std::string& type : family.types) {
    if (IsGradientOp(type)) continue;
    std::string anchor = type;
    for (char& c : anchor) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    links.push_back(fmt::format("[{}]({}.md#{})", type, family.name, anchor));
  }
  return fmt::format("| [{0}]({0}.md) | {1} |\n", family.name, Join(links, ", "));
}

std::string IndexPage(const std::vector<OpFamily>& families) {
  std::string text = fmt::format("# Operators\n\n{}\n| family | ops |\n|---|---|\n", kMade);
  for (const OpFamily& family : families) text += FamilyRow(family);
  text +=
      "\n## Known and refused\n\nThese types of Paddle cannot run here. Programs that hold one are "
      "refused with the\nreason.\n\n| type | reason |\n|---|---|\n";
  for (const RefusedOp& op : RefusedOps())
    text += fmt::format("| `{}` | {} |\n", op.type, Escape(op.reason));
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> OpPages() {
  const std::vector<OpFamily> families = OpFamilies();
  std::vector<std::pair<std::string, std::string>> pages = {{"README.md", IndexPage(families)}};
  for (const OpFamily& family : families)
    pages.emplace_back(family.name + ".md", FamilyPage(family));
  return pages;
}

}  // namespace coracle::tools
