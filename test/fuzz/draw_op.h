#pragma once
// One op at random, with operands, attrs and outputs that its shape rule accepts.

#include <coracle/framework/ir/program.h>
#include <coracle/test/fuzz/choices.h>
#include <coracle/test/fuzz/op_hints.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

// A variable that ops may read.
struct Live {
  std::string name;
  double limit = 0;       // integers lie in [0, limit)
  bool positive = false;  // numbers are above 0
  bool fed = false;
};

struct DrawnOp {
  SlotList inputs, outputs;
  AttrList attrs;
  std::vector<ProgramInput> made;        // inputs that do not exist yet
  std::map<std::string, VarMeta> metas;  // of the outputs, which have new names
};

class OpDrawer {
 public:
  // `smooth`: ops by their smooth recipes only.
  OpDrawer(Choices& choose, bool smooth) : choose_(choose), smooth_(smooth) {}
  // The dtype of operands that may have any, instead of a drawn one.
  void SetDType(std::optional<DType> dtype) { dtype_ = dtype; }
  // Up to two dimensions of an op have the lengths at which vector kernels change their loops.
  void UseLargeDims() { large_dims_ = true; }

  // For `block`, from what is live there. nullopt: this time nothing fits. Without
  // `may_make_inputs` it reads what is there only.
  std::optional<DrawnOp> Draw(const OpSpec& def, const BlockDesc& block,
                              const std::vector<Live>& live, bool may_make_inputs);

  std::string NewName(const char* prefix) { return prefix + std::to_string(next_name_++); }
  Shape NewShape(size_t least_rank);
  // Outputs that have no gradient although they change with the inputs: statistics, and what
  // only backward reads.
  static bool IsConstant(const OpSpec& def, const std::string& slot);

 private:
  const VarMeta& MetaOf(const std::string& name) const;
  int64_t NewDim();
  DType AnyDType();
  Shape ShapeFor(const SlotHint& slot, OpDraft& draft);
  std::string Choose(const SlotHint& slot, OpDraft& draft);
  std::string NewInput(const SlotHint& slot, bool constant, OpDraft& draft);
  std::vector<SlotHint> PlainSlots(const OpSpec& def);
  bool FillInputs(const std::vector<SlotHint>& slots, OpDraft& draft);
  double Real(const AttrDef& def);
  template <class T>
  T Integer(const AttrDef& def);
  template <class F>
  auto List(F&& element);
  std::optional<Attribute> AnyValue(const AttrDef& def);
  void FillAttrs(const Recipe* recipe, OpDraft& draft);
  SlotList NewOutputs(const OpDraft& draft);

  Choices& choose_;
  bool smooth_;
  bool large_dims_ = false;
  std::optional<DType> dtype_;
  int next_name_ = 0;
  // State of the op being drawn.
  const BlockDesc* block_ = nullptr;
  const std::vector<Live>* live_ = nullptr;
  bool may_make_inputs_ = true;
  int large_left_ = 0;  // large dimensions that it may still get
};

}  // namespace coracle
