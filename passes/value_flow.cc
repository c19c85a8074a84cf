#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/check/flow_types.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/quantized_form.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>

namespace coracle::inline internal {

bool HasOtherInput(const OpDesc& op, std::string_view slot) {
  return op.AnyInput([&](const std::string&, const std::string& other) { return other != slot; });
}

std::string OnlyVariable(const std::vector<std::string>& args) {
  return args.size() == 1 && !IsEmptyName(args[0]) ? args[0] : "";
}

bool IsFunction(const OpSpec& spec) {
  return spec.kind == OpKind::kCompute && !spec.random && !spec.side_effect &&
         !spec.run_time_shape && spec.keeps_outputs.empty();
}

std::optional<DType> DTypeOfTensor(const BlockDesc& block, const std::string& var) {
  const VarDesc* desc = block.FindVarRecursive(var);
  return desc && desc->type() == VarType::kLoDTensor ? std::optional(desc->dtype()) : std::nullopt;
}

void InferAll(const BlockDesc& block, const OpRegistry& ops, FlowTypes& types) {
  block.ForEachOp([&](const OpDesc& op) {
    if (const OpSpec* spec = ops.Find(op.type()); spec && !op.HasSubBlock()) types.Infer(*spec, op);
  });
}

RecomputedOps::RecomputedOps(const ProgramDesc& program) {
  program.ForEachOp([&](const OpDesc& op) {
    if (!op.HasAttr(kRecomputedFromAttr)) return;
    for (const std::string& name : op.GetAttr<std::vector<std::string>>(kRecomputedFromAttr, {}))
      originals_.insert(name);
  });
}

bool RecomputedOps::Contain(const OpDesc& op) const {
  if (op.HasAttr(kRecomputedFromAttr)) return true;
  return !originals_.empty() &&
         op.AnyOutput([&](const std::string& name) { return originals_.count(name) > 0; });
}

ValueFlow::ValueFlow(ProgramDesc& program, const PassContext& context)
    : block_(program.Root()), context_(context), recomputed_(program) {
  for (int b = 1; b < program.NumBlocks(); ++b) {
    program.Block(b).ForEachOp([&](const OpDesc& op) {
      op.ForEachInput([&](const std::string& name) { inner_names_.insert(name); });
      op.ForEachOutput([&](const std::string& name) {
        inner_names_.insert(name);
        inner_writes_.insert(name);
      });
    });
  }
  // A sub-block refers to slices by the names of the sliced variables.
  for (const OpDesc* op : block_.SubBlockOps()) {
    const OpSpec* spec = context.ops.Find(op->type());
    if (!spec) continue;
    for (const std::string& slot : spec->block.slices) {
      for (const std::string& name : op->Input(slot)) inner_names_.insert(name);
    }
  }
}

bool ValueFlow::IsSeen(const std::string& var) const {
  return context_.IsVisible(block_, var) || context_.feeds.count(var) > 0 ||
         inner_names_.count(var) > 0;
}

bool ValueFlow::IsTemporary(const std::string& var) const {
  const VarDesc* desc = block_.FindVar(var);
  return desc && desc->type() == VarType::kLoDTensor && block_.Uses(var).writers.size() == 1 &&
         !IsSeen(var);
}

bool ValueFlow::IsConstantInARun(const std::string& var) const {
  if (inner_writes_.count(var)) return false;
  const VarDesc* desc = block_.FindVar(var);
  const bool given = context_.feeds.count(var) > 0 || !desc || desc->persistable();
  return block_.Uses(var).writers.size() <= (given ? 0 : 1);
}

bool ValueFlow::IsUnread(const std::string& var) const {
  return block_.Uses(var).readers.empty() && !IsSeen(var);
}

bool ValueFlow::IsOnlyOutput(const OpDesc& op, const std::string& out) const {
  return !op.AnyOutput([&](const std::string& var) { return var != out && !IsUnread(var); });
}

bool ValueFlow::IsWrittenBetween(const std::string& var, size_t first, size_t last) const {
  if (inner_writes_.count(var)) return true;
  const auto writers = block_.Uses(var).writers;
  return std::any_of(writers.begin(), writers.end(), [&](const OpDesc* writer) {
    const size_t at = block_.IndexOf(*writer);
    return first <= at && at <= last;
  });
}

bool ValueFlow::MayStandFor(const std::string& source, const OpDesc& op,
                            const std::string& out) const {
  if (!IsTemporary(out)) return false;
  const size_t at = block_.IndexOf(op);
  size_t last = at;
  for (const OpDesc* reader : block_.Uses(out).readers)
    last = std::max(last, block_.IndexOf(*reader));
  return !IsWrittenBetween(source, at, last);
}

bool ValueFlow::IsSame(const std::string& var, const OpDesc& op, const OpDesc& later) const {
  return !IsWrittenBetween(var, block_.IndexOf(op), block_.IndexOf(later));
}

OpDesc* ValueFlow::WriterOf(const std::string& temporary) const {
  if (!IsTemporary(temporary)) return nullptr;
  OpDesc* writer = block_.Uses(temporary).writers[0];
  return removed_.count(writer) ? nullptr : writer;
}

const OpDesc* ValueFlow::ReaderOf(const std::string& temporary) const {
  const auto readers = block_.Uses(temporary).readers;
  if (!IsTemporary(temporary) || readers.size() != 1 || IsRecomputed(*readers[0])) return nullptr;
  int positions = 0;
  readers[0]->ForEachInput([&](const std::string& name) { positions += name == temporary; });
  return positions == 1 ? readers[0] : nullptr;
}

int ValueFlow::CertainRank(const std::string& var, int depth) const {
  if (auto it = ranks_.find(var); it != ranks_.end()) return it->second;
  if (depth > 64) return -1;
  ranks_[var] = -1;  // ends cycles of ops that read their own results
  const int rank = FindRank(var, depth);
  ranks_[var] = rank;
  return rank;
}

int ValueFlow::FindRank(const std::string& var, int depth) const {
  if (const Tensor* value = context_.FrozenValue(Source(var))) return value->shape().rank();
  const auto writers = block_.Uses(var).writers;
  if (const VarDesc* desc = block_.FindVar(var); desc && context_.feeds.count(var))
    return desc->need_check_feed() && writers.empty() ? desc->shape().rank() : -1;
  if (writers.size() != 1 || !IsTemporary(var)) return -1;
  const OpDesc& op = *writers[0];
  const OpSpec* spec = context_.ops.Find(op.type());
  if (!spec) return -1;
  const std::string& type = op.type();
  if (type == "conv2d" || type == "depthwise_conv2d" || type == "pool2d") return 4;
  const auto rank_of = [&](const char* slot) {
    return op.Input(slot).size() == 1 ? CertainRank(op.Input(slot)[0], depth + 1) : -1;
  };
  const std::vector<std::string> only = {var};
  if ((type == "layer_norm" || type == "batch_norm") && op.Output("Y") == only) return rank_of("X");
  if (op.Output("Out") != only) return -1;
  if (type == "transpose" || type == "transpose2")
    return static_cast<int>(spec->AttrOf<std::vector<int32_t>>(op, "axis").size());
  if (type == "softmax" || type == "dropout") return rank_of("X");
  if (type == "affine_quantize" || type == "affine_dequantize") return rank_of("X");
  if (type == "matmul" || type == "matmul_v2") {
    const int x = rank_of("X"), y = rank_of("Y");
    return x >= 2 && y >= 2 ? std::max(x, y) : -1;
  }
  if (type == "mul") {
    const int y = rank_of("Y");
    return y < 0 ? -1
                 : spec->AttrOf<int32_t>(op, "x_num_col_dims") + y -
                       spec->AttrOf<int32_t>(op, "y_num_col_dims");
  }
  if (type == "fc") {
    const int rows = spec->AttrOf<int32_t>(op, "in_num_col_dims");
    if (rows > 0) return rows + 1;
    const int x = rank_of("Input");
    return x < 0 ? -1 : x + rows + 1;
  }
  const auto has_others = [&](std::string_view most) {
    return op.AnyInput([&](const std::string&, const std::string& slot) {
      return most.find(slot) == std::string_view::npos;
    });
  };
  if (spec->elementwise && op.Input("Y").size() == 1 && !has_others("XY")) {
    const int x = rank_of("X"), y = rank_of("Y");
    return x >= 0 && y >= 0 ? std::max(x, y) : -1;
  }
  if (op.Input("X").size() != 1 || has_others("X")) return -1;
  if (type == "reshape" || type == "reshape2")
    return static_cast<int>(spec->AttrOf<std::vector<int32_t>>(op, "shape").size());
  return spec->elementwise ? rank_of("X") : -1;
}

void ValueFlow::Forward(const std::string& out, const std::string& source) {
  forwards_[out] = Source(source);
}

void ValueFlow::Replace(const OpDesc& op, OpDesc with) {
  AddOrigins(op, with);
  replaced_[&op] = std::make_unique<OpDesc>(with);
}

const std::string& ValueFlow::Source(const std::string& var) const {
  const std::string* source = &var;
  for (auto it = forwards_.find(var); it != forwards_.end(); it = forwards_.find(*source))
    source = &it->second;
  return *source;
}

bool ValueFlow::Apply() {
  if (forwards_.empty() && removed_.empty() && replaced_.empty()) return false;
  std::vector<std::unique_ptr<OpDesc>> kept;
  for (std::unique_ptr<OpDesc>& op : block_.ReleaseOps()) {
    if (removed_.count(op.get())) continue;
    auto with = replaced_.find(op.get());
    kept.push_back(with == replaced_.end() ? std::move(op) : std::move(with->second));
  }
  const auto reads_forwarded = [&](const std::string& name) { return forwards_.count(name) > 0; };
  for (const std::unique_ptr<OpDesc>& op : kept) {
    if (!op->AnyInput(reads_forwarded)) continue;
    op->RenameInputs([&](const std::string& name) { return Source(name); });
  }
  block_.SetOps(std::move(kept));
  forwards_.clear();
  removed_.clear();
  replaced_.clear();
  return true;
}

bool LodFlow::MayHaveLod(const std::string& var) const {
  if (auto it = known_.find(var); it != known_.end()) return it->second;
  // Follows the variable back to the source of its LoD.
  std::vector<std::string> path = {var};
  bool may = true;
  while (true) {
    const std::string& at = path.back();
    if (auto it = known_.find(at); it != known_.end()) {
      may = it->second;
      break;
    }
    known_[at] = true;  // also ends cycles of variables without a value
    if (context_.FrozenValue(at)) {
      may = false;
      break;
    }
    const VarDesc* desc = block_.FindVar(at);
    const auto writers = block_.Uses(at).writers;
    if (!desc || desc->persistable() || context_.feeds.count(at) || writers.size() != 1 ||
        context_.captured.count(at))
      break;
    const OpSpec* spec = context_.ops.Find(writers[0]->type());
    if (!spec || spec->makes_lod || writers[0]->HasSubBlock()) break;
    const std::string* source = nullptr;
    writers[0]->ForEachOutput([&](const std::string& name, const std::string& slot, size_t i) {
      if (name == at) source = spec->LodSource(*writers[0], slot, i);
    });
    if (!source) {
      may = false;
      break;
    }
    if (*source == at) break;
    path.push_back(*source);
  }
  for (const std::string& name : path) known_[name] = may;
  return may;
}

namespace {

// Includes the types of frozen values.
class TypesOfValues : public FlowTypes {
 public:
  TypesOfValues(const BlockDesc& block, const PassContext& context)
      : FlowTypes(block), context_(context) {}
  const Tensor* Constant(const std::string& name) const override {
    return context_.FrozenValue(name);
  }

 private:
  const PassContext& context_;
};

}  // namespace

bool CertainDTypes::IsGiven(const BlockDesc& root, const PassContext& context,
                            const std::string& var) const {
  if (context.FrozenValue(var)) return true;
  const VarDesc* desc = root.FindVar(var);
  return desc && desc->type() == VarType::kLoDTensor && !desc->persistable() &&
         context.feeds.count(var) > 0;
}

CertainDTypes::CertainDTypes(const ProgramDesc& program, const PassContext& context) {
  const BlockDesc& root = program.Root();
  TypesOfValues types(root, context);
  const auto set = [&](const std::string& name, bool certain) {
    const VarMeta* meta = certain ? types.Find(name) : nullptr;
    if (meta && meta->type == VarType::kLoDTensor)
      dtypes_[name] = meta->dtype;
    else
      dtypes_.erase(name);
  };
  root.ForEachOp([&](const OpDesc& op) {
    const OpSpec* def = context.ops.Find(op.type());
    bool certain = def && !op.HasSubBlock();
    op.ForEachInput([&](const std::string& name) {
      if (IsGiven(root, context, name)) set(name, true);
      certain = certain && dtypes_.count(name) > 0;
    });
    // Verify has reported an op whose rule refuses the inputs.
    certain = def && types.Infer(*def, op) && certain;
    op.ForEachOutput(
        [&](const std::string& name) { set(name, certain && !types.IsDeclaredOnly(name)); });
    for (const BlockDesc* inner : program.BlocksRunBy(op)) {
      inner->ForEachOp([&](const OpDesc& run) {
        run.ForEachOutput([&](const std::string& name) { set(name, false); });
      });
    }
  });
}

std::optional<DType> CertainDTypes::Find(const std::string& var) const {
  const auto found = dtypes_.find(var);
  return found == dtypes_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace coracle::inline internal
