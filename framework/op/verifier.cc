#include <coracle/framework/base/text.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/verifier.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

using Severity = Problem::Severity;

// Attrs that any op may carry and that choose an implementation or record an origin; see DESIGN
// "Attributes that choose an implementation are accepted from files and ignored".
bool IsIgnoredAttr(std::string_view name) {
  static const std::unordered_set<std::string_view> kIgnored = {
      "op_role",           "op_role_var",        "op_namescope",
      "op_callstack",      "op_device",          "with_quant_attr",
      "use_cudnn",         "use_mkldnn",         "use_quantizer",
      "mkldnn_data_type",  "force_fp32_output",  "workspace_size_MB",
      "exhaustive_search", "use_addto",          "x_data_format",
      "y_data_format",     "x_num_flatten_dims", "data_format",
      "is_test",           "force_cpu",          "place_type",
      "rnn_block_id",      "is_negative"};
  return kIgnored.count(name) > 0 || name.starts_with("Scale_") || name.starts_with("fuse_") ||
         name.starts_with("fused_");
}

bool InRange(const AttrDef& def, double value) {
  return !std::isnan(value) && (!def.min || value >= *def.min) && (!def.max || value <= *def.max);
}

std::string RangeText(const AttrDef& def) {
  if (def.min && def.max) return fmt::format("lie in [{}, {}]", *def.min, *def.max);
  if (def.min) return fmt::format("be at least {}", *def.min);
  return fmt::format("be at most {}", *def.max);
}

class OpChecker {
 public:
  OpChecker(const OpDef& def, const OpDesc& op, int block, int index,
            std::vector<Problem>* problems)
      : def_(def), op_(op), block_(block), index_(index), problems_(problems) {}

  void Run() {
    CheckSlots(op_.inputs(), def_.inputs(), "input");
    CheckSlots(op_.outputs(), def_.outputs(), "output");
    CheckAttrs();
  }

 private:
  Problem& Add(Severity severity, std::string rule, std::string message) {
    problems_->push_back(
        {severity, std::move(rule), std::move(message), "", block_, index_, op_.type(), "", ""});
    return problems_->back();
  }

  void CheckSlots(const SlotList& slots, const std::vector<SlotDef>& defs, const char* what) {
    for (size_t i = 0; i < slots.size(); ++i) {
      const Slot& slot = slots[i];
      auto same = [&](const Slot& s) { return s.name == slot.name; };
      if (std::find_if(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(i), same) !=
          slots.begin() + static_cast<std::ptrdiff_t>(i)) {
        Add(Severity::kError, "duplicate_slot",
            fmt::format("{} {} is given twice", what, Quote(slot.name)))
            .slot = slot.name;
        continue;
      }
      CheckSlot(slot, defs, what);
    }
    for (const SlotDef& def : defs) {
      if (def.optional) continue;
      bool present = std::any_of(slots.begin(), slots.end(), [&](const Slot& s) {
        return s.name == def.name && !s.args.empty();
      });
      if (!present) {
        Add(Severity::kError, "missing_slot", fmt::format("{} {} is required", what, def.name))
            .slot = def.name;
      }
    }
  }

  void CheckSlot(const Slot& slot, const std::vector<SlotDef>& defs, const char* what) {
    auto def = std::find_if(defs.begin(), defs.end(),
                            [&](const SlotDef& d) { return d.name == slot.name; });
    if (def == defs.end()) {
      if (slot.args.empty()) return;  // "ResidualData: []" and the like
      std::vector<std::string> names;
      for (const SlotDef& d : defs) names.push_back(d.name);
      Add(Severity::kError, "unknown_slot",
          fmt::format("has no {} {}{}", what, Quote(slot.name), DidYouMean(slot.name, names)))
          .slot = slot.name;
      return;
    }
    if (!def->variadic && slot.args.size() > 1) {
      Add(Severity::kError, "slot_arity",
          fmt::format("{} {} holds one variable, got {}", what, slot.name, slot.args.size()))
          .slot = slot.name;
    }
  }

  void CheckAttrs() {
    for (size_t i = 0; i < op_.attrs().size(); ++i) {
      const NamedAttr& attr = op_.attrs()[i];
      for (size_t k = 0; k < i; ++k) {
        if (op_.attrs()[k].name == attr.name) {
          Add(Severity::kError, "duplicate_attr",
              fmt::format("attr {} is given twice", Quote(attr.name)));
          break;
        }
      }
      const AttrDef* def = def_.FindAttr(attr.name);
      if (def)
        CheckAttr(*def, attr.value);
      else if (!IsIgnoredAttr(attr.name))
        UnknownAttr(attr.name);
    }
    for (const AttrDef& def : def_.attrs()) {
      if (!def.default_value && !op_.HasAttr(def.name)) {
        Add(Severity::kError, "missing_attr", fmt::format("attr {} is required", def.name));
      }
    }
  }

  void UnknownAttr(const std::string& name) {
    std::vector<std::string> names;
    for (const AttrDef& def : def_.attrs()) names.push_back(def.name);
    Add(Severity::kNote, "unknown_attr",
        fmt::format("attr {} is not known and ignored{}", Quote(name), DidYouMean(name, names)));
  }

  void CheckAttr(const AttrDef& def, const Attribute& value) {
    Attribute converted;
    if (!ConvertAttribute(value, def.type, &converted)) {
      Add(Severity::kError, "attr_type",
          fmt::format("attr {} must be {}, got {} {}", def.name, ToString(def.type),
                      ToString(TypeOf(value)), ToString(value)));
      return;
    }
    if (!AttrInRange(def, converted)) {
      Add(Severity::kError, "attr_range",
          fmt::format("attr {} must {}, got {}", def.name, RangeText(def), ToString(value)));
    }
    const auto* text = std::get_if<std::string>(&converted);
    if (text && !def.one_of.empty() &&
        std::find(def.one_of.begin(), def.one_of.end(), *text) == def.one_of.end()) {
      Add(Severity::kError, "attr_range",
          fmt::format("attr {} must be one of {}, got {}{}", def.name, Join(def.one_of, ", "),
                      Quote(*text), DidYouMean(*text, def.one_of)));
    }
  }

  static bool AttrInRange(const AttrDef& def, const Attribute& value) {
    if (!def.min && !def.max) return true;
    return std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_arithmetic_v<T>) {
            return InRange(def, static_cast<double>(v));
          } else if constexpr (std::is_same_v<T, std::vector<int32_t>> ||
                               std::is_same_v<T, std::vector<int64_t>> ||
                               std::is_same_v<T, std::vector<float>> ||
                               std::is_same_v<T, std::vector<double>>) {
            return std::all_of(v.begin(), v.end(),
                               [&](auto x) { return InRange(def, static_cast<double>(x)); });
          } else {
            return true;
          }
        },
        value);
  }

  const OpDef& def_;
  const OpDesc& op_;
  int block_, index_;
  std::vector<Problem>* problems_;
};

// What is known of the variables at one point of a block: shapes inferred so far, else as declared.
class FlowTable : public MetaTable {
 public:
  FlowTable(const BlockDesc& block, const FlowTable* outer) : block_(block), outer_(outer) {
    flow_.reserve(block.NumVars());
  }
  const VarMeta* Find(const std::string& name) const override {
    for (const FlowTable* t = this; t; t = t->outer_) {
      auto it = t->flow_.find(name);
      if (it != t->flow_.end()) return &it->second;
    }
    const VarDesc* var = block_.FindVarRecursive(name);
    return var ? &var->meta() : nullptr;
  }
  void Set(const std::string& name, const VarMeta& meta) override {
    flow_.insert_or_assign(std::string_view(name), meta);  // the name lives in the program
    last_set_ = name;
  }

 private:
  const BlockDesc& block_;
  const FlowTable* outer_;
  std::unordered_map<std::string_view, VarMeta> flow_;
  std::string_view last_set_;
};

class Verifier {
 public:
  Verifier(const ProgramDesc& program, const OpRegistry& ops, const VerifyOptions& options)
      : program_(program), ops_(ops), options_(options) {}

  std::vector<Problem> Run() {
    if (program_.NumBlocks() == 0) {
      Add(-1, nullptr, "no_block", "the program has no block");
      return std::move(problems_);
    }
    if (CheckBlocks()) {
      for (int b = 0; b < program_.NumBlocks(); ++b) {
        for (size_t i = 0; i < program_.Block(b).NumVars(); ++i)
          CheckVar(b, program_.Block(b).var(i));
        CheckOps(program_.Block(b));
      }
    }
    if (dropped_ > 0) {
      Add(-1, nullptr, "more", fmt::format("and {} more problems", dropped_));
    }
    return std::move(problems_);
  }

 private:
  Problem* Add(int index, const OpDesc* op, std::string rule, std::string message) {
    if (problems_.size() >= options_.max_problems && rule != "more") {
      ++dropped_;
      return nullptr;
    }
    problems_.push_back({Severity::kError, std::move(rule), std::move(message), "", current_block_,
                         index, op ? op->type() : "", "", ""});
    return &problems_.back();
  }

  // Indices of blocks and of their parents; false when look-ups would not be safe.
  bool CheckBlocks() {
    size_t before = problems_.size();
    int n = program_.NumBlocks();
    for (int b = 0; b < n; ++b) {
      const BlockDesc& block = program_.Block(b);
      current_block_ = b;
      if (block.idx() != b) {
        Add(-1, nullptr, "block_index",
            fmt::format("block {} says that its index is {}", b, block.idx()));
      }
      int parent = block.parent_idx();
      if (b == 0 ? parent != -1 : (parent < 0 || parent >= n)) {
        Add(-1, nullptr, "block_index",
            fmt::format("block {} has the parent {}, which is not a block", b, parent));
      } else if (b > 0 && parent >= b) {
        Add(-1, nullptr, "block_cycle",
            fmt::format("block {} has the parent {}, which does not come before it", b, parent));
      }
      int forward = block.forward_block_idx();
      if (forward < -1 || forward >= n || forward == b) {
        Add(-1, nullptr, "block_index",
            fmt::format("block {} has the forward block {}, which is not another block", b,
                        forward));
      }
    }
    current_block_ = 0;
    return problems_.size() == before;
  }

  void CheckVar(int block, const VarDesc& var) {
    current_block_ = block;
    for (int64_t dim : var.shape()) {
      if (dim < -1) {
        if (Problem* p = Add(
                -1, nullptr, "var_shape",
                fmt::format("var {} has the shape {}; a dimension is -1 (unknown) or not negative",
                            Quote(var.name()), var.shape().ToString()))) {
          p->var = var.name();
        }
        return;
      }
    }
    int64_t product = 1;
    for (int64_t dim : var.shape()) {
      if (dim > 0 && __builtin_mul_overflow(product, dim, &product)) product = INT64_MAX;
    }
    if (product > (int64_t{1} << 48)) {
      if (Problem* p = Add(-1, nullptr, "var_shape",
                           fmt::format("var {} with the shape {} is too large for any memory",
                                       Quote(var.name()), var.shape().ToString()))) {
        p->var = var.name();
      }
    }
  }

  void CheckOps(const BlockDesc& block) {
    current_block_ = block.idx();
    FlowTable flow(block, nullptr);
    std::unordered_set<std::string_view> written, unknown;
    std::unordered_map<std::string_view, size_t> first_write;
    first_write.reserve(block.NumOps());
    for (size_t i = 0; i < block.NumOps(); ++i) {
      for (const Slot& slot : block.op(i).outputs()) {
        for (const std::string& arg : slot.args) first_write.emplace(arg, i);
      }
    }
    for (size_t i = 0; i < block.NumOps(); ++i) {
      const OpDesc& op = block.op(i);
      size_t before = problems_.size();
      CheckSubBlocks(op, static_cast<int>(i));
      CheckReads(block, op, static_cast<int>(i), first_write);
      const OpDef* def = ops_.Find(op.type());
      if (!def) {
        std::string hint =
            unknown.insert(op.type()).second ? DidYouMean(op.type(), ops_.Types()) : "";
        Add(static_cast<int>(i), &op, "unknown_op",
            fmt::format("unknown op type {}{}", Quote(op.type()), hint));
        continue;
      }
      CheckOp(*def, op, block.idx(), static_cast<int>(i), &scratch_);
      for (Problem& p : scratch_) {
        if (problems_.size() < options_.max_problems)
          problems_.push_back(std::move(p));
        else
          ++dropped_;
      }
      scratch_.clear();
      bool clean =
          std::none_of(problems_.begin() + static_cast<std::ptrdiff_t>(before), problems_.end(),
                       [](const Problem& p) { return p.severity == Severity::kError; });
      if (clean && options_.infer_shapes) InferShapes(*def, op, static_cast<int>(i), flow);
    }
  }

  void CheckSubBlocks(const OpDesc& op, int index) {
    auto check = [&](BlockRef ref) {
      if (ref.idx <= current_block_ || ref.idx >= program_.NumBlocks()) {
        Add(index, &op, "block_index",
            fmt::format("names the sub-block {}, which is not a block after block {}", ref.idx,
                        current_block_));
      }
    };
    for (const NamedAttr& attr : op.attrs()) {
      if (const auto* one = std::get_if<BlockRef>(&attr.value)) check(*one);
      if (const auto* many = std::get_if<std::vector<BlockRef>>(&attr.value)) {
        for (BlockRef ref : *many) check(ref);
      }
    }
  }

  void CheckReads(const BlockDesc& block, const OpDesc& op, int index,
                  const std::unordered_map<std::string_view, size_t>& first_write) {
    for (const Slot& slot : op.inputs()) {
      for (const std::string& arg : slot.args) {
        if (IsEmptyName(arg)) continue;
        const VarDesc* var = block.FindVarRecursive(arg);
        if (!var) {
          if (Problem* p =
                  Add(index, &op, "undefined_var",
                      fmt::format("reads the var {}, which no block declares", Quote(arg)))) {
            p->slot = slot.name;
            p->var = arg;
          }
          continue;
        }
        // Written here, but only later. Persistable values and sub-blocks (loops) may read what a
        // later op writes.
        auto write = first_write.find(arg);
        if (block.idx() == 0 && !var->persistable() && write != first_write.end() &&
            write->second >= static_cast<size_t>(index) && !IsFed(op)) {
          if (Problem* p = Add(index, &op, "use_before_def",
                               fmt::format("reads the var {} before op {} writes it", Quote(arg),
                                           write->second))) {
            p->slot = slot.name;
            p->var = arg;
          }
        }
      }
    }
    for (const Slot& slot : op.outputs()) {
      for (const std::string& arg : slot.args) {
        if (IsEmptyName(arg) || block.FindVarRecursive(arg)) continue;
        if (Problem* p =
                Add(index, &op, "undefined_var",
                    fmt::format("writes the var {}, which no block declares", Quote(arg)))) {
          p->slot = slot.name;
          p->var = arg;
        }
      }
    }
  }

  // An op that updates one of its own inputs in place reads what was fed or defined outside.
  static bool IsFed(const OpDesc& op) {
    for (const Slot& in : op.inputs()) {
      for (const std::string& arg : in.args) {
        for (const Slot& out : op.outputs()) {
          if (std::find(out.args.begin(), out.args.end(), arg) != out.args.end()) return true;
        }
      }
    }
    return false;
  }

  void InferShapes(const OpDef& def, const OpDesc& op, int index, FlowTable& flow) {
    try {
      InferContext context(def, op, flow);
      def.RunInfer(context);
    } catch (const Error& e) {
      if (Problem* p = Add(index, &op, "shape", e.message())) p->details = e.details();
      return;
    }
    for (const Slot& slot : op.outputs()) {
      for (const std::string& arg : slot.args) CheckAgainstDeclared(op, index, slot, arg, flow);
    }
  }

  void CheckAgainstDeclared(const OpDesc& op, int index, const Slot& slot, const std::string& arg,
                            const FlowTable& flow) {
    if (IsEmptyName(arg)) return;
    const VarDesc* var = program_.Block(current_block_).FindVarRecursive(arg);
    const VarMeta* inferred = flow.Find(arg);
    if (!var || !inferred || inferred == &var->meta() || !var->persistable()) return;
    if (var->type() != VarType::kLoDTensor || inferred->type != VarType::kLoDTensor) return;
    if (var->dtype() == inferred->dtype && var->shape().CompatibleWith(inferred->shape)) return;
    if (Problem* p = Add(index, &op, "shape_contradiction",
                         fmt::format("writes {} to the persistable var {}, which is declared {}",
                                     inferred->ToString(), Quote(arg), var->meta().ToString()))) {
      p->slot = slot.name;
      p->var = arg;
    }
  }

  const ProgramDesc& program_;
  const OpRegistry& ops_;
  VerifyOptions options_;
  std::vector<Problem> problems_, scratch_;
  size_t dropped_ = 0;
  int current_block_ = 0;
};

}  // namespace

std::string Problem::ToString() const {
  std::string where = fmt::format("block {}", block);
  if (op >= 0) where += fmt::format(" op {} ({})", op, op_type);
  if (!slot.empty()) where += fmt::format(" slot {}", slot);
  return fmt::format("{}: {}", where, message);
}

void CheckOp(const OpDef& def, const OpDesc& op, int block, int index,
             std::vector<Problem>* problems) {
  OpChecker(def, op, block, index, problems).Run();
}

std::vector<Problem> Verify(const ProgramDesc& program, const OpRegistry& ops,
                            const VerifyOptions& options) {
  return Verifier(program, ops, options).Run();
}

void VerifyOrThrow(const ProgramDesc& program, const OpRegistry& ops,
                   const VerifyOptions& options) {
  std::vector<Problem> errors = Verify(program, ops, options);
  std::erase_if(errors, [](const Problem& p) { return p.severity != Severity::kError; });
  if (errors.empty()) return;
  std::string message = errors.front().ToString();
  if (errors.size() > 1) message += fmt::format(" (and {} more problems)", errors.size() - 1);
  std::string details = errors.front().details;
  for (size_t i = 1; i < errors.size() && i < 20; ++i) {
    if (!details.empty()) details += "\n";
    details += "  " + errors[i].ToString();
  }
  throw Error(ErrorCode::kInvalidArgument, std::move(message), std::move(details));
}

}  // namespace coracle
