#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/node_importers.h>
#include <coracle/convert/onnx/import/refused_types.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {

void NodeImporters::Add(NodeImporter row) {
  if (!row.takes) throw InternalError("the row of " + row.op_type + " does not say what it takes");
  row.inputs = ParseInputRules(row.takes);
  by_type_[row.op_type].push_back(rows_.size());
  rows_.push_back(std::move(row));
}

const NodeImporter& NodeImporters::Get(const std::string& domain, const std::string& op_type,
                                       int64_t version) const {
  const auto found = by_type_.find(op_type);
  int64_t newest = 0;
  for (size_t i : found == by_type_.end() ? std::vector<size_t>{} : found->second) {
    const NodeImporter& row = rows_[i];
    if (row.domain != domain) continue;
    if (row.since <= version && version <= row.until) return row;
    newest = std::max<int64_t>(newest, row.until);
  }
  if (newest > 0) {
    throw Error(
        ErrorCode::kUnimplemented,
        version > newest
            ? fmt::format("operator set {} is too new: the op is known up to {}", version, newest)
            : fmt::format("operator set {} is too old for this op", version));
  }
  if (const char* why = WhyRefused(domain, op_type)) throw Error(ErrorCode::kUnimplemented, why);
  std::vector<std::string> known;
  for (const NodeImporter& row : rows_) known.push_back(row.op_type);
  throw Error(ErrorCode::kUnimplemented,
              fmt::format("the op type has no counterpart{}{}",
                          domain.empty() ? "" : fmt::format(" (domain {})", Quote(domain)),
                          DidYouMean(op_type, known)));
}

const NodeImporters& AllNodeImporters() {
  static const NodeImporters all = [] {
    NodeImporters importers;
    for (const auto add : kFamilies) add(importers);
    return importers;
  }();
  return all;
}

}  // namespace coracle::onnx
