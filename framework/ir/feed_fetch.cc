#include <coracle/framework/ir/feed_fetch.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

constexpr const char* kFeed = "feed";
constexpr const char* kFetch = "fetch";
constexpr const char* kCol = "col";

// The variables of all ops of one type, by column.
std::vector<std::string> Columns(const BlockDesc& root, const char* type, bool outputs) {
  std::vector<std::pair<int64_t, std::string>> columns;
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const OpDesc& op = root.op(i);
    if (op.type() != type) continue;
    const auto& args = outputs ? op.Output("Out") : op.Input("X");
    if (args.size() != 1)
      ThrowInvalid(
          fmt::format("op {} ({}) names {} variables instead of one", i, type, args.size()));
    columns.emplace_back(op.GetAttr<int64_t>(kCol, 0), args[0]);
  }
  std::stable_sort(columns.begin(), columns.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (auto& column : columns) names.push_back(std::move(column.second));
  return names;
}

std::string AddHolder(ProgramDesc& program, const char* name, VarType type) {
  VarDesc& holder = program.Root().Var(program.FreeName(name));
  holder.SetType(type);
  holder.SetPersistable(true);
  return holder.name();
}

std::unique_ptr<OpDesc> MakeOp(const char* type, const std::string& from, const std::string& to,
                               size_t column) {
  return std::make_unique<OpDesc>(
      type, SlotList{{"X", {from}}}, SlotList{{"Out", {to}}},
      AttrList{{kCol, static_cast<int32_t>(column)}, {kOpRoleAttr, int32_t{kForward}}});
}

}  // namespace

bool IsFeed(const OpDesc& op) { return op.type() == kFeed; }
bool IsFetch(const OpDesc& op) { return op.type() == kFetch; }

std::vector<std::string> FeedNames(const ProgramDesc& program) {
  return Columns(program.Root(), kFeed, true);
}

std::vector<std::string> FetchNames(const ProgramDesc& program) {
  return Columns(program.Root(), kFetch, false);
}

void RemoveFeedsAndFetches(ProgramDesc& program) {
  BlockDesc& root = program.Root();
  root.RemoveOpsIf([](const OpDesc& op) { return op.type() == kFeed || op.type() == kFetch; });
  root.RemoveVarsIf([](const VarDesc& var) {
    return var.type() == VarType::kFeedMinibatch || var.type() == VarType::kFetchList;
  });
}

void SetFeedsAndFetches(ProgramDesc& program, const std::vector<std::string>& feeds,
                        const std::vector<std::string>& fetches) {
  RemoveFeedsAndFetches(program);
  const std::string feed = AddHolder(program, kFeed, VarType::kFeedMinibatch);
  const std::string fetch = AddHolder(program, kFetch, VarType::kFetchList);
  std::vector<std::unique_ptr<OpDesc>> ops;
  for (size_t i = feeds.size(); i-- > 0;) ops.push_back(MakeOp(kFeed, feed, feeds[i], i));
  for (auto& op : program.Root().ReleaseOps()) ops.push_back(std::move(op));
  for (size_t i = 0; i < fetches.size(); ++i) ops.push_back(MakeOp(kFetch, fetches[i], fetch, i));
  program.Root().SetOps(std::move(ops));
}

}  // namespace coracle::inline internal
