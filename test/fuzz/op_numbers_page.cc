#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <coracle/test/fuzz/op_numbers_page.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

namespace coracle {
namespace {

constexpr const char* kText = R"(# Numbers

`op_numbers` runs every op of the registry, and its gradient ops, on random shapes, attrs and
values, and writes this page. It ran {} cases for this one.
Instruction sets: {}.

```
build/test/fuzz/op_numbers --seconds=420 --threads=2 --markdown=docs/numbers.md
build/test/fuzz/op_numbers --count=500 --values=4 --threads=2 --markdown=numbers.md   # a night
build/test/fuzz/op_numbers --types=softmax --seed=17 --count=1 --show   # repeats a case
```

## A case

A case has three parts. The name of an op type and a seed decide the first two, and the number of a
filling decides the third:

1. A program of one op of that type: its optional slots, attrs and dtype, and the shapes of its
   inputs. Half of the programs have up to two long dimensions (up to 130), so that vector loops run
   with their remainders. An input has at most 32768 elements.
2. The gradient ops that backward appends for all floating-point inputs, if the op has a gradient.
   The gradients that arrive are inputs, too.
3. The values of all inputs, from one of these classes, or each input from a class of its own:
   ordinary numbers, numbers up to 1000, huge ones (up to the largest of the type), large, small,
   tiny and subnormal ones, zeros of both signs, infinities, nans, one value everywhere, and
   mixtures. A class fills all elements, or one in four of them. Integers are at the ends of their
   type.

`--count` is the number of programs of each op, `--seed` the first seed, and `--values` the number
of fillings of each program (1 without it). The same options give the same cases on any number of
threads. Two threads ran 54134 cases in 440 seconds, so a million take about two hours and a quarter.

Each op of a case runs three times: with its fast kernel, with its reference kernel, and
with its reference kernel in float64 on the same numbers. The last one is called the truth.

## The error

The unit of an error is the change of the truth that rounding of the inputs alone would cause: one
unit in the last place of the result, plus the largest change of the truth when every input moves to
a neighbouring number (four random moves). So a sum in which large numbers cancel is measured by the
numbers that it adds, and `exp(80)` by the last place of 80. An error of 1 is as good as the type
allows. Results of float64 have no truth, so the fast kernel is compared with the reference kernel.

Which results are nans and infinities must agree, too. Results next to the largest number of the
type, and results of jumps and poles, where a neighbouring input changes everything, are not
compared.

The interpreter runs the ops, so subnormal numbers are kept here;
[a run of a program treats them as 0](executor.md#what-holds). Fast kernels may give 0 where the
truth is below 2e-36 ([numbers next to 0](executor.md#where-fast-and-reference-kernels-differ)); such
results count as right, and the last column says how many there were.

## Worst errors

"-": the op has no fast kernel. A test runs some cases of each op and compares them with this table;
the fast kernels only on a machine with the same instruction sets, which decide which kernels run.

| op | type | cases | fast | reference | 0 for below 2e-36 |
|---|---|---|---|---|---|
)";

constexpr const char* kDifferences = R"(
## Differences beyond rounding

The number of cases in which a result had another kind (finite, inf, nan) than the truth or than by
the other kernel, or was off by more than 1000 units, and a case that shows it.

| op | type | difference | cases | example |
|---|---|---|---|---|
)";

constexpr std::string_view kInstructionSets = "Instruction sets: ";

std::vector<std::string> CellsOf(const std::string& line) {
  std::vector<std::string> cells;
  for (const std::string& cell : Split(line, '|')) cells.emplace_back(Trim(cell));
  return cells;
}

std::optional<double> NumberOf(const std::string& text) {
  if (text == "-") return std::nullopt;
  return std::strtod(text.c_str(), nullptr);
}

}  // namespace

std::string InstructionSets() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) continue;
  const std::vector<std::string> flags = Split(line, ' ');
  std::string found;
  for (const char* set : {"avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile"})
    if (std::find(flags.begin(), flags.end(), set) != flags.end())
      found += (found.empty() ? "" : ", ") + std::string(set);
  return found.empty() ? "none" : found;
}

std::string NumbersPage(const OpErrorRows& rows, uint64_t cases) {
  std::string page = fmt::format(fmt::runtime(kText), cases, InstructionSets());
  for (const auto& [key, errors] : rows) {
    if (!errors.measured || !IsFloating(key.second)) continue;
    const bool fast = DefaultOps().Get(key.first).HasFastKernel();
    page += fmt::format("| {} | {} | {} | {} | {} | {} |\n", key.first, ToString(key.second),
                        errors.cases, fast ? fmt::format("{:.3g}", errors.fast) : "-",
                        key.second == DType::kFloat64 ? "-" : fmt::format("{:.3g}", errors.plain),
                        errors.flushed > 0 ? std::to_string(errors.flushed) : "");
  }
  page += kDifferences;
  for (const auto& [key, errors] : rows) {
    for (const auto& [kind, defect] : errors.defects)
      page += fmt::format("| {} | {} | {} | {} | `{}` |\n", key.first, ToString(key.second), kind,
                          defect.cases, ToOptions(defect.first));
  }
  return page;
}

NumbersLimits ReadNumbersPage(const std::string& text) {
  NumbersLimits limits;
  bool differences = false;
  for (const std::string& line : Split(text, '\n')) {
    differences = differences || line.starts_with("## Differences");
    if (line.starts_with(kInstructionSets)) {
      limits.instruction_sets = line.substr(kInstructionSets.size());
      limits.instruction_sets.pop_back();  // the full stop
    }
    const std::vector<std::string> cells = CellsOf(line);
    if (cells.size() < 7 || cells[1] == "op" || cells[1].starts_with("---")) continue;
    if (differences)
      limits.differences.emplace(cells[1], cells[3]);
    else
      limits.rows[{cells[1], cells[2]}] = {NumberOf(cells[4]), NumberOf(cells[5])};
  }
  return limits;
}

}  // namespace coracle
