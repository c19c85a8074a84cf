#pragma once
// The schema of model text as protobuf descriptors, made at run time.

#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/internal/layer_defs.h>
#include <coracle/layers/internal/schema_writer.h>

#include <memory>
#include <string>
#include <vector>

namespace coracle::inline internal {

// The meaning of a field of an op entry.
struct OpField {
  enum class Kind { kInput, kOutput, kAttr };
  Kind kind;
  std::string name;  // the slot's or attr's own name: "X@GRAD" for the field X_GRAD
  AttrType type;     // of an attr
};

struct OpEntry {
  const OpSpec* def;
  std::vector<OpField> fields;  // by the index of the field in its message
};

class TextSchema {
 public:
  explicit TextSchema(const OpRegistry& ops);

  const SchemaPool& pool() const { return *pool_; }
  // By index of the field in message Layer; nullptr for op, include and repeat.
  const LayerDef* Layer(int index) const;
  // By index of the field in message Op; nullptr for the fields common to all ops.
  const OpEntry* Op(int index) const;

 private:
  std::vector<LayerDef> layers_;
  std::vector<OpEntry> ops_;
  std::unique_ptr<SchemaPool> pool_;
};

// The schema of a registry. The schema of the default ops is cached until something is registered.
std::shared_ptr<const TextSchema> CurrentTextSchema(const OpRegistry& ops);

}  // namespace coracle::inline internal
