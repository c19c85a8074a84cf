#pragma once
// The op types that the importer knows. Each family of them is a file with a function that adds its
// rows: docs/onnx.md is made of these rows.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "input_rules.h"

namespace coracle::onnx {

class NodeContext;

// The newest operator set that the rows were read against. In later ones an op may have changed.
inline constexpr int kNewestOpset = 28;
// Before it many ops broadcast by attributes, and models are rare.
inline constexpr int kOldestOpset = 7;

// What an importer does with inputs of uint16 and uint32, whose variables are wider.
enum class Unsigned {
  kRefuse,  // refused by name
  kMoves,   // elements are moved or compared, which is exact; outputs of the first input's dtype
            // have its type
  kWraps,   // arithmetic modulo 2^n of the wider type, whose low bits are then taken
};

struct NodeImporter {
  std::string op_type;
  // The operator sets in which the op has this meaning: from, and up to.
  int since = kOldestOpset;
  int until = kNewestOpset;
  // What the inputs are, as input_rules.h has it. An importer sees no others.
  const char* takes = nullptr;
  void (*import)(NodeContext&) = nullptr;
  std::string maps_to;  // a line of docs/onnx.md: Paddle's ops
  Unsigned unsigneds = Unsigned::kRefuse;
  // Its ops round more than once: floats of 16 bits are computed in float32, and rounded at the
  // end.
  bool composed = false;
  bool foldable = true;     // its results on constants are constants: not random, no state
  std::string domain = "";  // "" is ONNX's own
  std::vector<InputRule> inputs = {};  // made of `takes` by Add
};

class NodeImporters {
 public:
  // Throws InternalError for a row that does not say what it takes.
  void Add(NodeImporter row);
  // The row of an op in that operator set. Throws kUnimplemented for an op type that no row has
  // (with the nearest one), or a version that none has.
  const NodeImporter& Get(const std::string& domain, const std::string& op_type,
                          int64_t version) const;
  const std::vector<NodeImporter>& rows() const { return rows_; }  // in the order of Add

 private:
  std::vector<NodeImporter> rows_;
  std::unordered_map<std::string, std::vector<size_t>> by_type_;
};

// All of them.
const NodeImporters& AllNodeImporters();

}  // namespace coracle::onnx
