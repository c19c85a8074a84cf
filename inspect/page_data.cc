#include <coracle/backward/gradient_tree.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/inspect/inspect.h>
#include <coracle/inspect/json.h>
#include <coracle/inspect/multiply_adds.h>
#include <coracle/inspect/op_text.h>
#include <coracle/inspect/page_data.h>
#include <coracle/inspect/planned_memory.h>
#include <coracle/inspect/trace_times.h>
#include <coracle/inspect/value_statistics.h>
#include <coracle/operators/op_families.h>
#include <fmt/format.h>

#include <map>
#include <set>

namespace coracle::inline internal {
namespace {

// --- declarations of op types ---

Json SlotsJson(const std::vector<SlotDef>& slots) {
  Json list = Json::array();
  for (const SlotDef& slot : slots) {
    const std::string traits = SlotTraits(slot);
    list.push_back(
        {{"name", slot.name}, {"doc", traits.empty() ? slot.doc : slot.doc + " (" + traits + ")"}});
  }
  return list;
}

Json OpTypeJson(const OpSpec& spec, const std::string& family) {
  Json attrs = Json::array(), constraints = Json::array();
  for (const AttrDef& attr : spec.attrs) {
    Json json = {{"name", attr.name}, {"doc", attr.doc}, {"limits", AttrLimits(attr)}};
    if (attr.default_value) json["default"] = JsonAttribute(*attr.default_value);
    attrs.push_back(std::move(json));
  }
  for (const ConstraintDef& c : spec.constraints)
    constraints.push_back({{"id", c.id}, {"text", c.text}});
  return {{"doc", spec.doc},
          {"family", family},
          {"inputs", SlotsJson(spec.inputs)},
          {"outputs", SlotsJson(spec.outputs)},
          {"attrs", std::move(attrs)},
          {"constraints", std::move(constraints)},
          {"gradient", GradientText(spec)},
          {"kernels", KernelsText(spec) + ", for " + DTypesText(spec)}};
}

Json OpTypesJson(const std::vector<PageProgram>& programs, const OpRegistry& ops) {
  std::set<std::string> types;
  for (const PageProgram& page : programs)
    page.program.ForEachOp([&](const OpDesc& op) { types.insert(op.type()); });
  std::map<std::string, std::string> families;
  for (const OpFamily& family : OpFamilies())
    for (const std::string& type : family.types) families[type] = family.name;
  Json json = Json::object();
  for (const std::string& type : types)
    if (const OpSpec* spec = ops.Find(type))
      AddMember(json, type, OpTypeJson(*spec, families[type]));
  return json;
}

// --- facts about one program ---

Json MultiplyAddsJson(const ProgramDesc& program) {
  Json blocks = Json::array();
  for (int b = 0; b < program.NumBlocks(); ++b) {
    Json counts = Json::array();
    program.Block(b).ForEachOp(
        [&](const OpDesc& op) { counts.push_back(JsonNumber(MultiplyAdds(op))); });
    blocks.push_back(std::move(counts));
  }
  return blocks;
}

bool HasUnknownDims(const ProgramDesc& program) {
  for (int b = 0; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i)
      if (!block.var(i).shape().IsKnown()) return true;
  }
  return false;
}

Json MemoryJson(const PlannedMemory& memory) {
  Json steps = Json::array(), storages = Json::array();
  for (const PlannedStep& step : memory.steps)
    steps.push_back({{"type", JsonString(step.op_type)}, {"output", JsonString(step.output)}});
  for (const PlannedStorage& s : memory.storages) {
    Json names = Json::array();
    for (const std::string& name : s.names) names.push_back(JsonString(name));
    storages.push_back({{"names", std::move(names)},
                        {"offset", s.offset},
                        {"bytes", s.bytes},
                        {"first", s.first},
                        {"last", s.last}});
  }
  return {{"arena_bytes", memory.arena_bytes},       {"result_bytes", memory.result_bytes},
          {"constant_bytes", memory.constant_bytes}, {"steps", std::move(steps)},
          {"storages", std::move(storages)},         {"in_use", memory.in_use}};
}

void AddMemory(const PageProgram& page, const OpRegistry& ops, Json* json) {
  const Scope none;
  std::string note = "The program as compiled, so that some ops are fused.";
  if (HasUnknownDims(page.program)) note += " Unknown dims of the inputs count as 1 (see --shape).";
  try {
    const PlannedMemory memory = PlanMemory(page.program, page.values ? *page.values : none, ops);
    (*json)["memory"] = MemoryJson(memory);
    if (!memory.ends.empty())
      note += " Only a part is planned before the run: " + memory.ends + ".";
  } catch (const Error& e) {
    note = "The memory is not planned: " + e.message();
  }
  (*json)["memory_note"] = JsonString(note);
}

Json StatisticsJson(const ValueStatistics& s) {
  Json json = {{"count", s.count},
               {"zeros", s.zeros},
               {"not_finite", s.not_finite},
               {"min", JsonNumber(s.min)},
               {"max", JsonNumber(s.max)},
               {"mean", JsonNumber(s.mean)},
               {"std", JsonNumber(s.deviation)},
               {"norm", JsonNumber(s.norm)}};
  if (s.count > s.not_finite && s.count > 1)
    json["histogram"] = {{"low", json["min"]}, {"high", json["max"]}, {"counts", s.histogram}};
  return json;
}

// Statistics of the program's own variables.
Json ValuesJson(const PageProgram& page) {
  Json json = Json::object();
  for (const std::string& name : page.values->LocalNames()) {
    const auto* tensor = std::get_if<Tensor>(page.values->Find(name));
    if (!tensor || tensor->empty() || IsComplex(tensor->dtype())) continue;
    bool known = false;
    for (int b = 0; b < page.program.NumBlocks() && !known; ++b)
      known = page.program.Block(b).FindVar(name) != nullptr;
    if (known) AddMember(json, name, StatisticsJson(StatisticsOf(*tensor)));
  }
  return json;
}

Json StepJson(const PlacedGradientStep& placed) {
  const GradientStep& step = placed.step;
  Json json = {{"from", JsonString(step.from)},
               {"to", JsonString(step.to)},
               {"block", placed.block},
               {"op", placed.op},
               {"from_slot", JsonString(step.from_slot)},
               {"to_slot", JsonString(step.to_slot)}};
  if (!step.obstacle.empty()) json["obstacle"] = JsonString(step.obstacle);
  return json;
}

Json GradientJson(const GradientTree& tree) {
  Json steps = Json::array(), starts = Json::object(), contributions = Json::object();
  for (const GradientTreeStep& step : tree.steps) {
    Json json = StepJson(step);
    json["next"] = step.next;
    for (const PlacedGradientStep& inner : step.inside) json["inside"].push_back(StepJson(inner));
    steps.push_back(std::move(json));
  }
  for (const auto& [name, step] : tree.starts) AddMember(starts, name, step);
  for (const auto& [name, count] : tree.contributions) AddMember(contributions, name, count);
  return {{"of", JsonString(tree.of)},
          {"steps", std::move(steps)},
          {"starts", std::move(starts)},
          {"contributions", std::move(contributions)}};
}

// The output of the op with role Loss that is not a gradient op; "" if there is none.
std::string LossOf(const ProgramDesc& program) {
  std::string loss;
  program.Root().ForEachOp([&](const OpDesc& op) {
    if (!HasRole(op, kLoss) || IsBackward(op)) return;
    op.ForEachOutput([&](const std::string& name) { loss = name; });
  });
  return loss;
}

void AddGradient(const PageProgram& page, const OpRegistry& ops, Json* json, Json* notes) {
  const std::string loss = page.loss.empty() ? LossOf(page.program) : page.loss;
  if (loss.empty()) return;
  BackwardOptions options;
  options.ops = &ops;
  try {
    (*json)["gradient"] = GradientJson(MakeGradientTree(page.program, loss, options));
  } catch (const Error& e) {
    if (!page.loss.empty() && e.code() == ErrorCode::kNotFound) throw;
    notes->push_back(JsonString("Paths of gradients cannot be shown: " + e.message()));
  }
}

// Returns whether the trace has ops of the program.
bool AddTimes(const PageProgram& page, Json* json, Json* notes) {
  if (page.trace.empty()) return false;
  const TraceTimes times = ReadTraceTimes(page.trace, page.trace_source, page.program);
  Json list = Json::array();
  for (const TracedOp& op : times.ops)
    list.push_back(
        {{"block", op.block}, {"op", op.op}, {"seconds", op.seconds}, {"runs", op.runs}});
  (*json)["times"] = {{"source", JsonString(page.trace_source)}, {"ops", std::move(list)}};
  if (times.ops.empty()) {
    notes->push_back("The trace has no op of this program.");
  } else if (times.without_op > 0) {
    notes->push_back(fmt::format(
        "{:.1f}% of the measured time belongs to ops that only the compiled program has, or that "
        "cannot be distinguished from others.",
        100 * times.without_op / times.seconds));
  }
  return !times.ops.empty();
}

// Adds a member whose value is already text. A parser of ordered objects would search all members
// for each new one, and a program has tens of thousands.
std::string WithMember(std::string object, const char* name, const std::string& value) {
  object.pop_back();
  return object + ",\"" + name + "\":" + value + "}";
}

// Sets `timed` if the trace has ops of the program.
std::string PageProgramJson(const PageProgram& page, const OpRegistry& ops,
                            const PageOptions& options, bool* timed) {
  Json json = {{"name", JsonString(page.name)},
               {"what", JsonString(page.what)},
               {"multiply_adds", MultiplyAddsJson(page.program)},
               {"unknown_dims", HasUnknownDims(page.program)}};
  Json notes = Json::array();
  if (options.plan_memory) AddMemory(page, ops, &json);
  if (page.values) json["values"] = ValuesJson(page);
  AddGradient(page, ops, &json, &notes);
  *timed |= AddTimes(page, &json, &notes);
  json["notes"] = std::move(notes);
  return WithMember(JsonLine(json), "program", ProgramJson(page.program, ops));
}

// --- the difference ---

std::string DifferenceJson(const PageProgram& before, const PageProgram& after,
                           const OpRegistry& ops) {
  const ProgramDiff diff = DiffPrograms(before.program, after.program, ops);
  std::vector<ValueDiff> values;
  if (before.values && after.values)
    values = DiffValues(diff, before.program, *before.values, after.program, *after.values);
  return DiffJson(diff, before.program, after.program, values);
}

}  // namespace

std::string PageData(const std::vector<PageProgram>& programs, const OpRegistry& ops,
                     const PageOptions& options) {
  if (programs.empty() || programs.size() > 2)
    ThrowInvalid(fmt::format("a page shows one program or two, got {}", programs.size()));
  Json data = JsonDocument("view");
  data["title"] = JsonString(TitleOf(programs, options));
  data["op_types"] = OpTypesJson(programs, ops);
  std::vector<std::string> parts;
  bool timed = programs[0].trace.empty();
  for (const PageProgram& page : programs)
    parts.push_back(PageProgramJson(page, ops, options, &timed));
  if (!timed) {
    ThrowInvalid(
        fmt::format("{} is the trace of another program: no op of {} writes the results of its ops",
                    Quote(programs[0].trace_source), Quote(programs[0].name)));
  }
  std::string text = WithMember(JsonLine(data), "programs", "[" + Join(parts, ",") + "]");
  if (programs.size() == 1) return text;
  return WithMember(std::move(text), "difference", DifferenceJson(programs[0], programs[1], ops));
}

std::string TitleOf(const std::vector<PageProgram>& programs, const PageOptions& options) {
  return options.title.empty() ? programs.at(0).name : options.title;
}

}  // namespace coracle::inline internal
