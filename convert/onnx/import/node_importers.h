#pragma once
// The op types that the importer supports. Each family is a file with a function that adds its
// rows; docs/onnx.md is generated from these rows.

#include <coracle/convert/onnx/import/input_rules.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace coracle::onnx {

class NodeContext;

// The newest operator set known to the rows. Later ones may have changed an op.
inline constexpr int kNewestOpset = 28;
// Earlier ones broadcast by attributes in many ops, and such models are rare.
inline constexpr int kOldestOpset = 7;

// How an importer treats inputs of types that are held in wider variables (dtypes.h), and of
// uint64, with which few ops compute. Small types only pass through words "T" and "V" of `takes`.
enum class Unsigned {
  // Rejects them with an error.
  kRefuse,
  // Moves or compares elements, which is exact. Outputs of the first input's dtype have its type.
  kMoves,
  // Computes modulo 2^n of the wider type, then takes the low bits.
  kWraps,
};

struct NodeImporter {
  std::string op_type;
  // The first and the last operator set in which the op has this meaning.
  int since = kOldestOpset;
  int until = kNewestOpset;
  // The inputs in the format of input_rules.h. An importer gets no others.
  const char* takes = nullptr;
  void (*import)(NodeContext&) = nullptr;
  std::string maps_to;  // a line of docs/onnx.md: Paddle's ops
  Unsigned unsigneds = Unsigned::kRefuse;
  // Its ops round more than once, so 16-bit floats are computed in float32 and rounded at the end.
  bool composed = false;
  // Its results on constants are constants: not random, without state.
  bool foldable = true;
  std::string domain = "";             // "" is ONNX's own
  std::vector<InputRule> inputs = {};  // parsed from `takes` by Add
};

class NodeImporters {
 public:
  // Throws InternalError for a row without `takes`.
  void Add(NodeImporter row);
  // The row of an op in that operator set. Throws kUnimplemented for an unknown op type (with the
  // nearest one), or for a version without a row.
  const NodeImporter& Get(const std::string& domain, const std::string& op_type,
                          int64_t version) const;
  const std::vector<NodeImporter>& rows() const { return rows_; }  // in the order of Add

 private:
  std::vector<NodeImporter> rows_;
  std::unordered_map<std::string, std::vector<size_t>> by_type_;
};

// All importers of all families.
const NodeImporters& AllNodeImporters();

}  // namespace coracle::onnx
