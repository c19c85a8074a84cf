#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/inspect.h>
#include <coracle/inspect/root_ops.h>
#include <coracle/inspect/written_values.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

constexpr std::string_view kInfix = "@WRITE@";

// Sets the number of threads that a way asks for, during its lifetime.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads) : before_(threads > 0 ? NumThreads() : 0) {
    if (threads > 0) SetNumThreads(threads);
  }
  ~ScopedThreads() {
    if (before_ > 0) SetNumThreads(before_);
  }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int before_;
};

// Whether the op's declaration says that only its gradient op reads the output.
bool IsIntermediate(const OpDesc& op, const std::string& name) {
  const OpSpec* spec = DefaultOps().Find(op.type());
  return spec && op.AnyOutput([&](const std::string& output, const std::string& slot) {
    const SlotDef* def = spec->FindOutput(slot);
    return output == name && def && def->intermediate;
  });
}

std::vector<std::string> FetchesWith(const RunWay& way, const std::vector<std::string>& more) {
  std::vector<std::string> fetches = FetchesOf(way);
  const std::unordered_set<std::string> has(fetches.begin(), fetches.end());
  for (const std::string& name : more) {
    if (!has.count(name)) fetches.push_back(name);
  }
  return fetches;
}

std::vector<Tensor> FeedsOf(const RunWay& way, const std::vector<std::string>& names) {
  std::vector<Tensor> tensors;
  for (const std::string& name : names) {
    const auto found = way.feeds.find(name);
    if (found == way.feeds.end())
      ThrowInvalid(fmt::format("the program's feed {} is missing", Quote(name)));
    tensors.push_back(found->second);
  }
  return tensors;
}

// Parses "x@WRITE@1" (value 1 of x); returns false for other names.
bool IsEarlierValue(const std::string& key, std::string* name, int64_t* number) {
  const size_t at = key.rfind(kInfix);
  if (at == std::string::npos || at == 0) return false;
  *name = key.substr(0, at);
  return ParseInt64(std::string_view(key).substr(at + kInfix.size()), number) && *number >= 0;
}

}  // namespace

std::vector<std::string> FetchesOf(const RunWay& way) {
  if (!way.fetches.empty()) return way.fetches;
  std::vector<std::string> fetches = OutputNames(*way.program, DefaultOps());
  const BlockDesc& root = way.program->Root();
  if (HasOpOfKind(root, OpKind::kFetch, DefaultOps())) return fetches;
  std::erase_if(fetches, [&](const std::string& name) {
    return IsIntermediate(*root.Uses(name).writers.back(), name);
  });
  return fetches;
}

std::vector<std::string> ResultsOf(const RunWay& way) {
  return way.fetches_all ? FetchesOf({.program = way.program}) : FetchesOf(way);
}

std::vector<std::string> WrittenNames(const ProgramDesc& program) {
  std::vector<std::string> names;
  const RootOps ops(program);
  for (const std::string& name : ops.written()) {
    const VarDesc* var = program.Root().FindVar(name);
    if (var && var->type() == VarType::kLoDTensor) names.push_back(name);
  }
  return names;
}

ValueObserver KeepInto(WrittenTensors* written) {
  return [written](const WrittenValue& value) {
    const auto* tensor = std::get_if<Tensor>(&value.value);
    if (tensor && value.in_root_block) (*written)[value.var].push_back(tensor->Clone());
  };
}

WrittenTensors KeepWritten(const RunWay& way, const std::vector<std::string>& names) {
  if (way.saved) return *way.saved;
  const ScopedThreads threads(way.threads);
  std::vector<std::string> feeds;
  if (!HasOpOfKind(way.program->Root(), OpKind::kFeed, DefaultOps())) {
    for (const auto& [name, tensor] : way.feeds) feeds.push_back(name);
  }
  Scope scope = way.parameters ? way.parameters() : Scope();
  const std::vector<std::string> fetches = FetchesWith(way, names);
  PreparedProgram prepared =
      Executor(way.options).PrepareOwning(*way.program, scope, feeds, fetches);
  WrittenTensors written;
  const std::unordered_set<std::string> only(names.begin(), names.end());
  const ScopedValueObserver observer([&, keep = KeepInto(&written)](const WrittenValue& value) {
    if (only.empty() || only.count(value.var)) keep(value);
  });
  const std::vector<Tensor>& results = prepared.Run(scope, FeedsOf(way, prepared.feed_names()));
  for (size_t i = 0; i < fetches.size() && i < results.size(); ++i) {
    const bool kept = only.empty() || only.count(fetches[i]);
    if (kept && !written.count(fetches[i])) written[fetches[i]] = {results[i].Clone()};
  }
  return written;
}

NamedTensors ToArrays(const WrittenTensors& written, const ProgramDesc& program) {
  NamedTensors arrays;
  const RootOps ops(program);
  for (const std::string& name : ops.written()) {
    const auto found = written.find(name);
    if (found == written.end()) continue;
    const std::vector<Tensor>& values = found->second;
    for (size_t i = 0; i + 1 < values.size(); ++i)
      arrays.emplace_back(fmt::format("{}{}{}", name, kInfix, i), values[i]);
    arrays.emplace_back(name, values.back());
  }
  return arrays;
}

WrittenTensors FromArrays(const NamedTensors& arrays) {
  WrittenTensors written;
  std::map<std::string, std::map<int64_t, Tensor>> earlier;
  for (const auto& [key, tensor] : arrays) {
    std::string name;
    int64_t number = 0;
    if (IsEarlierValue(key, &name, &number))
      earlier[name][number] = tensor;
    else
      written[key] = {tensor};
  }
  for (auto& [name, values] : earlier) {
    const auto last = written.find(name);
    const int64_t highest = values.rbegin()->first;
    if (last == written.end() || highest != static_cast<int64_t>(values.size()) - 1) {
      ThrowInvalid(
          fmt::format("the values of {} are incomplete: {} is there, but not the values before "
                      "and after it",
                      Quote(name), Quote(fmt::format("{}{}{}", name, kInfix, highest))));
    }
    std::vector<Tensor> all;
    for (auto& [number, tensor] : values) all.push_back(std::move(tensor));
    all.push_back(std::move(last->second.front()));
    last->second = std::move(all);
  }
  return written;
}

}  // namespace coracle::inline internal
