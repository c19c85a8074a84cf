#include <coracle/framework/base/text.h>
#include <coracle/tools/command.h>
#include <coracle/tools/compare_text.h>
#include <coracle/tools/flags.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::tools {
namespace {

using Kind = TensorDifference::Kind;

constexpr size_t kMaxLines = 40, kMaxNames = 12;

// Formats a distance.
std::string NumberText(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.3g}", value);
}
// Describes differing values: "2 of 6 elements out of tolerance, worst at [1, 2]: 3.5 against 3
// (absolute 0.5, ...)".
std::string ValuesText(const TensorDifference& difference) {
  const WorstElement& worst = *difference.worst;
  if (difference.a->dtype == DType::kString) {
    return fmt::format("{} of {} texts differ, the first at [{}]: {} against {}",
                       difference.outside, difference.a->shape.numel(),
                       fmt::join(worst.index, ", "), worst.text_a, worst.text_b);
  }
  std::string text = fmt::format(
      "{} of {} elements out of tolerance, worst at [{}]: {} against {} (absolute {}, relative {})",
      difference.outside, difference.a->shape.numel(), fmt::join(worst.index, ", "),
      ElementText(worst.a, worst.integer_a, difference.a->dtype, worst.text_a),
      ElementText(worst.b, worst.integer_b, difference.b->dtype, worst.text_b),
      NumberText(worst.absolute), NumberText(worst.relative));
  if (difference.non_finite > 0)
    text += fmt::format("; {} where nan or infinity is on one side", difference.non_finite);
  return text;
}

std::string DescribeDifference(const TensorDifference& difference, const Sides& sides) {
  switch (difference.kind) {
    case Kind::kEqual:
      return "agrees";
    case Kind::kOnlyInA:
      return fmt::format("{} only in {}", difference.a->ToString(), Shown(sides.a));
    case Kind::kOnlyInB:
      return fmt::format("{} only in {}", difference.b->ToString(), Shown(sides.b));
    case Kind::kLod:
      return fmt::format("{}: other sequences (LoD)", difference.a->ToString());
    case Kind::kShape:
      return fmt::format("{} against {}", difference.a->ToString(), difference.b->ToString());
    case Kind::kDType:
      return fmt::format("{} against {}{}", difference.a->ToString(), difference.b->ToString(),
                         difference.outside > 0 ? "; " + ValuesText(difference) : "");
    case Kind::kValues:
      break;
  }
  return fmt::format("{}: {}", difference.a->ToString(), ValuesText(difference));
}

std::string NameOf(const TensorDifference& difference) {
  return difference.name.empty() ? "the array" : Shown(difference.name);
}

std::string Within(const Tolerance& tolerance) {
  return fmt::format("rtol {} and atol {}", tolerance.relative, tolerance.absolute);
}

// Describes the largest difference of all, for runs that agree.
std::string LargestText(const std::vector<const TensorDifference*>& all) {
  const TensorDifference* largest = nullptr;
  for (const TensorDifference* difference : all) {
    if (!largest || difference->max_absolute > largest->max_absolute) largest = difference;
  }
  if (!largest || largest->max_absolute == 0) return "; all elements are equal";
  return fmt::format("; the largest absolute difference is {}, of {}",
                     NumberText(largest->max_absolute), NameOf(*largest));
}

std::string Names(const std::vector<std::string>& names) { return ShownNames(names, kMaxNames); }

std::string PlaceText(const OpPlace& place) {
  return fmt::format("block 0 op {} ({})", place.op, PrintableLine(place.type));
}

// Describes the inputs of the first op that differs.
std::string CauseText(const RunsDifference& runs, const OpPlace& writer) {
  std::string text;
  if (!runs.inputs.empty())
    text += fmt::format("  inputs (within tolerance, fed or parameters): {}\n", Names(runs.inputs));
  if (runs.hidden)
    text +=
        "  the difference vanishes if its inputs are fetched: passes that fuse these ops cause it, "
        "see --disabled_passes\n";
  if (runs.between.empty()) return text;
  std::vector<std::string> ops;
  for (const OpPlace& place : runs.between)
    ops.push_back(fmt::format("{} {}", place.op, place.type));
  return text + fmt::format(
                    "  not compared between these and op {}: ops {}; the runs diverge in one "
                    "of them or in op {}\n",
                    writer.op, Names(ops), writer.op);
}

// The variable after the first one that differs most from the other run.
const ComparedVariable* WorstAfter(const RunsDifference& runs) {
  const ComparedVariable* worst = nullptr;
  const auto excess = [](const ComparedVariable& variable) {
    const auto& element = variable.difference.worst;
    return element && !std::isnan(element->absolute) ? element->absolute : HUGE_VAL;
  };
  for (size_t i = static_cast<size_t>(runs.first) + 1; i < runs.compared.size(); ++i) {
    const ComparedVariable& variable = runs.compared[i];
    if (!variable.difference.Differs()) continue;
    if (!worst || excess(variable) > excess(*worst)) worst = &variable;
  }
  return worst;
}

// Describes where the runs diverge first.
std::string FirstText(const RunsDifference& runs) {
  const ComparedVariable& first = runs.compared[static_cast<size_t>(runs.first)];
  std::string text =
      fmt::format("the runs diverge at {}, which writes {}\n  {}\n", PlaceText(first.writer),
                  NameOf(first.difference), DescribeDifference(first.difference, {"A", "B"}));
  text += CauseText(runs, first.writer);
  if (const ComparedVariable* worst = WorstAfter(runs)) {
    text +=
        fmt::format("worst after it: {}, {}\n  {}\n", PlaceText(worst->writer),
                    NameOf(worst->difference), DescribeDifference(worst->difference, {"A", "B"}));
  }
  return text;
}

std::string NotComparedText(const RunsDifference& runs) {
  std::string text;
  if (runs.not_compared > 0)
    text += fmt::format(
        "{} not compared: passes or plans removed them from a run, a program lacks them, or they "
        "hold no dense tensor\n",
        Counted(static_cast<size_t>(runs.not_compared), "variable"));
  if (!runs.renamed.empty())
    text += fmt::format(
        "{} left out: they differ, but not when they are fetched (a pass uses the name for another "
        "value, or causes the difference): {}\n",
        Counted(runs.renamed.size(), "variable"), Names(runs.renamed));
  if (!runs.untried.empty())
    text += fmt::format(
        "{} left out: they differ, but perhaps not when they are fetched (check with --fetch or "
        "--fetch_all): {}\n",
        Counted(runs.untried.size(), "variable"), Names(runs.untried));
  return text;
}

}  // namespace

Fields<ToleranceFlags> ToleranceFields() {
  return Fields<ToleranceFlags>("")
      .Add("rtol", &ToleranceFlags::rtol,
           "relative tolerance: `NUMBER` times the magnitude of the second element (default: "
           "1e-05)",
           ZeroOrMore())
      .Add("atol", &ToleranceFlags::atol,
           "absolute tolerance: `NUMBER` added to the relative one (default: 1e-06)", ZeroOrMore())
      .Add("same_dtype", &ToleranceFlags::same_dtype,
           "tensors of different dtypes differ, whatever their values");
}

Tolerance ToleranceOf(const ToleranceFlags& flags) {
  return {.relative = flags.rtol.value_or(1e-5),
          .absolute = flags.atol.value_or(1e-6),
          .same_dtype = flags.same_dtype,
          .exact_integers = !flags.rtol && !flags.atol};
}

bool HoldsComplex(const TensorDifference& difference) {
  return (difference.a && IsComplex(difference.a->dtype)) ||
         (difference.b && IsComplex(difference.b->dtype));
}

bool AnyDiffers(const std::vector<TensorDifference>& differences) {
  return std::any_of(differences.begin(), differences.end(),
                     [](const TensorDifference& d) { return d.Differs(); });
}

std::string CompareText(const std::vector<TensorDifference>& differences,
                        const Tolerance& tolerance, const Sides& sides) {
  std::vector<const TensorDifference*> all;
  std::string text;
  size_t differ = 0;
  for (const TensorDifference& difference : differences) {
    all.push_back(&difference);
    if (!difference.Differs() || ++differ > kMaxLines) continue;
    text += fmt::format("{}: {}\n", NameOf(difference), DescribeDifference(difference, sides));
  }
  if (differ > kMaxLines) text += fmt::format("... and {} more\n", differ - kMaxLines);
  if (differ == 0)
    return fmt::format("{} within {}{}\n", Counted(all.size(), "variable"), Within(tolerance),
                       LargestText(all));
  return text + fmt::format("{} of {} {} ({})\n", differ, Counted(all.size(), "variable"),
                            differ == 1 ? "differs" : "differ", Within(tolerance));
}

std::string RunsText(const RunsDifference& runs, const Tolerance& tolerance, const Sides& sides) {
  std::string text = fmt::format("A: {}\nB: {}\n", Shown(sides.a), Shown(sides.b));
  std::vector<const TensorDifference*> all;
  for (const ComparedVariable& variable : runs.compared) all.push_back(&variable.difference);
  for (const TensorDifference& result : runs.other_results) all.push_back(&result);
  const auto differ =
      std::count_if(all.begin(), all.end(), [](const auto* d) { return d->Differs(); });
  if (runs.first >= 0) text += FirstText(runs);
  for (const TensorDifference& result : runs.other_results) {
    if (result.Differs())
      text += fmt::format("{}: {}\n", NameOf(result), DescribeDifference(result, {"A", "B"}));
  }
  const std::string within = Within(tolerance), counted = Counted(all.size(), "variable");
  text += differ == 0 ? fmt::format("{} within {}{}\n", counted, within, LargestText(all))
                      : fmt::format("{} of {} {} ({})\n", differ, counted,
                                    differ == 1 ? "differs" : "differ", within);
  return text + NotComparedText(runs);
}

}  // namespace coracle::tools
