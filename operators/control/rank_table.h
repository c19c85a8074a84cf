#pragma once
// Checked access to a rank table, for the ops of dynamic recurrent nets.

#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

inline void RequireTable(const InferContext& ctx, std::string_view id) {
  const VarMeta& meta = ctx.Input("RankTable");
  ctx.Require(id, meta.type == VarType::kLoDRankTable, meta);
}

inline void RequireRows(const InferContext& ctx, std::string_view id, const char* slot) {
  ctx.Require(id, ctx.InputShape(slot).rank() >= 1, ctx.InputShape(slot));
}

inline const RankTable& TableAt(Workspace& ws, const TensorArg& arg) {
  const auto* table = std::get_if<RankTable>(&ws.ValueOf(arg));
  if (!table) ThrowInvalid("the rank table was not made");
  return *table;
}

inline int64_t LongerThan(const RankTable& table, int64_t step) {
  auto end = std::partition_point(table.items.begin(), table.items.end(),
                                  [&](const RankTable::Item& item) { return item.length > step; });
  return end - table.items.begin();
}

// The index in the table of each sequence.
inline std::vector<int64_t> Places(const RankTable& table) {
  std::vector<int64_t> places(table.items.size(), -1);
  for (size_t k = 0; k < table.items.size(); ++k) {
    const auto i = static_cast<size_t>(table.items[k].index);
    if (i >= places.size() || places[i] >= 0)
      ThrowInvalid(fmt::format("the rank table is wrong: item {} is sequence {} of {}", k, i,
                               places.size()));
    places[i] = static_cast<int64_t>(k);
  }
  return places;
}

}  // namespace coracle::inline internal
