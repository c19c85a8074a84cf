#include <coracle/framework/base/error.h>
#include <coracle/framework/op/check/run_rules.h>
#include <coracle/operators/elementwise/fused_group.h>

#include <algorithm>

namespace coracle::inline internal {

const VarMeta* GroupTypes::Find(const std::string& name) const {
  auto it = metas_.find(name);
  return it == metas_.end() ? nullptr : &it->second;
}

void FusedGroup::Infer(GroupTypes& types) const {
  block->ForEachOp([&](const OpDesc& op) {
    InferContext context(ops->Get(op.type()), op, types);
    RunInfer(context);
  });
}

bool FusedGroup::CanInfer(GroupTypes& types) const {
  try {
    Infer(types);
  } catch (const Error&) {
    return false;
  } catch (const NeedsValue&) {
    return false;
  } catch (const NeedsLod&) {
    return false;
  }
  return true;
}

FusedGroup FusedGroupOf(const OpDesc& op, const OpSpec& spec, const OpRegistry& ops) {
  FusedGroup group;
  group.ops = &ops;
  group.arguments = spec.AttrOf<std::vector<std::string>>(op, "arguments");
  group.results = spec.AttrOf<std::vector<std::string>>(op, "results");
  const int block = spec.AttrOf<BlockRef>(op, "sub_block").idx;
  if (op.block() && block > 0 && block < op.block()->program().NumBlocks())
    group.block = &op.block()->program().Block(block);
  return group;
}

// --- plans ---

FusedVars::FusedVars(const PrepareContext& context, const FusedGroup& group) {
  if (!group.block) ThrowInvalid(context.op().type() + ": the block of ops to run is missing");
  GroupTypes types(true, [&](const std::string& name) -> const Tensor* {
    const auto it = index.find(name);
    return it == index.end() ? nullptr : context.Constant("X", it->second);
  });
  const auto add = [&](const std::string& name, int argument) {
    index[name] = list.size();
    list.push_back({name, *types.Find(name), argument});
  };
  for (size_t i = 0; i < group.arguments.size(); ++i) {
    const TensorArg x = context.Input("X", i);
    inputs.push_back(x);
    types.Set(group.arguments[i], {x.type, x.dtype, x.shape, 0});
    add(group.arguments[i], static_cast<int>(i));
  }
  try {
    group.Infer(types);
  } catch (const NeedsValue& needed) {
    context.Unsupported("a shape depends on the value of " + needed.var);
  } catch (const NeedsLod&) {
    context.Unsupported("a shape depends on a LoD");
  }
  group.block->ForEachOp([&](const OpDesc& op) {
    op.ForEachOutput([&](const std::string& name) {
      if (!types.Find(name)) ThrowWithoutShape(op, name);
      add(name, -1);
    });
  });
  for (size_t i = 0; i < group.results.size(); ++i)
    list[IndexOf(group.results[i])].result = static_cast<int>(i);
  last_use.assign(list.size(), 0);
  for (size_t t = 0; t < group.block->NumOps(); ++t) {
    const auto note = [&](const std::string& name) { last_use[IndexOf(name)] = t; };
    group.block->op(t).ForEachInput(note);
    group.block->op(t).ForEachOutput(note);
  }
}

TensorArg PartArgs::Scratch(DType dtype, const Shape& shape) {
  const size_t index = pointers_++;
  places_.push_back({static_cast<int64_t>(index), used_});
  used_ = CheckedAdd(used_, LineAligned(static_cast<int64_t>(ByteSize(dtype, shape))));
  bytes_ = std::max(bytes_, used_);
  return {static_cast<int32_t>(index), dtype, shape, shape.numel()};
}

// --- pieces ---

Shape FusedCut::PieceOf(const FusedVar& var, int64_t piece_rows) const {
  if (flat) {
    Shape piece = shape;
    piece[dim] = piece_rows;
    return piece;
  }
  Shape piece = var.meta.shape;
  for (int i = 0; var.first_dim >= 0 && i < piece.rank(); ++i) {
    const int d = var.first_dim + i;
    if (d <= dim && piece[i] != 1) piece[i] = d < dim ? 1 : piece_rows;
  }
  return piece;
}

int64_t FusedCut::StepOf(const FusedVar& var, int d) const {
  if (flat) return 1;
  const Shape& own = var.meta.shape;
  const int i = d - var.first_dim;
  if (var.first_dim < 0 || i < 0 || i >= own.rank() || own[i] == 1) return 0;
  return own.Product(i + 1, own.rank());
}

namespace {

// Runs the shape rules on hypothetical shapes.
class Trial {
 public:
  Trial(const FusedGroup& group, const std::vector<FusedVar>& vars) : group_(group), vars_(vars) {}

  // Whether the rules give results of the shape `out` for arguments with the shapes from `shape`.
  template <class ShapeOf>
  bool Holds(const ShapeOf& shape, const Shape& out) const {
    GroupTypes types = Types();
    for (const FusedVar& var : vars_) {
      if (var.argument >= 0) types.Set(var.name, WithShape(var, shape(var)));
    }
    if (!group_.CanInfer(types)) return false;
    return std::all_of(vars_.begin(), vars_.end(), [&](const FusedVar& var) {
      const VarMeta* meta = types.Find(var.name);
      return var.argument >= 0 || (meta && meta->shape == out);
    });
  }

 private:
  static GroupTypes Types() {
    return {true, [](const std::string&) { return static_cast<const Tensor*>(nullptr); }};
  }
  static VarMeta WithShape(const FusedVar& var, const Shape& shape) {
    VarMeta meta = var.meta;
    meta.shape = shape;
    return meta;
  }

  const FusedGroup& group_;
  const std::vector<FusedVar>& vars_;
};

// Whether a variable's dims match the group's from `first` on.
bool Fits(const Shape& own, const Shape& group, int first) {
  for (int i = 0; i < own.rank(); ++i) {
    if (own[i] != 1 && own[i] != group[first + i]) return false;
  }
  return true;
}

// Replaces each dim that is not 1 by a prime for the dim of the group to which it corresponds. A
// shape rule then accepts the operands only if the assumed alignment is right.
Shape Distinct(Shape shape, int first_dim) {
  static constexpr int64_t kPrimes[Shape::kMaxRank] = {2, 3, 5, 7, 11, 13, 17, 19, 23};
  for (int i = 0; first_dim >= 0 && i < shape.rank(); ++i) {
    if (shape[i] != 1) shape[i] = kPrimes[first_dim + i];
  }
  return shape;
}

// Finds the dims of the group that the dims of each argument correspond to.
class Alignment {
 public:
  Alignment(const FusedGroup& group, const Shape& shape, std::vector<FusedVar>& vars)
      : shape_(shape), trial_(group, vars) {
    for (FusedVar& var : vars) {
      var.first_dim = 0;
      if (var.argument < 0 || var.meta.shape == shape) continue;
      var.first_dim = -1;
      if (var.meta.shape.numel() != 1) open_.push_back(&var);
    }
  }

  bool Find() { return Try(0); }

 private:
  static constexpr int kMaxTrials = 64;

  // Tries the last dims first; if several positions are possible, the shape rules accept one.
  bool Try(size_t k) {
    if (k == open_.size()) {
      return ++trials_ <= kMaxTrials &&
             trial_.Holds(
                 [](const FusedVar& var) { return Distinct(var.meta.shape, var.first_dim); },
                 Distinct(shape_, 0));
    }
    FusedVar& var = *open_[k];
    const Shape& own = var.meta.shape;
    for (int first = shape_.rank() - own.rank(); first >= 0 && trials_ < kMaxTrials; --first) {
      if (!Fits(own, shape_, first)) continue;
      var.first_dim = first;
      if (Try(k + 1)) return true;
    }
    return false;
  }

  const Shape& shape_;
  Trial trial_;
  std::vector<FusedVar*> open_;
  int trials_ = 0;
};

bool OneShape(const std::vector<FusedVar>& vars, const Shape& shape) {
  return std::all_of(vars.begin(), vars.end(),
                     [&](const FusedVar& var) { return var.meta.shape == shape; });
}

// Chooses the outermost dim of which a row fits into a piece, and rows of about equal number.
void ChooseRows(int64_t elements, FusedCut* cut) {
  const Shape& shape = cut->shape;
  const int rank = shape.rank();
  while (cut->dim + 1 < rank && shape.Product(cut->dim + 1, rank) > elements) ++cut->dim;
  const int64_t row = shape.Product(cut->dim + 1, rank), all = shape[cut->dim];
  const int64_t most = std::max<int64_t>(1, elements / row);
  cut->chunks = (all + most - 1) / most;
  cut->rows = (all + cut->chunks - 1) / cut->chunks;
  if (row == 1 && cut->chunks > 1) cut->rows = std::min(all, (cut->rows + 63) / 64 * 64);
  cut->chunks = (all + cut->rows - 1) / cut->rows;
  cut->outer = shape.Product(0, cut->dim);
}

// Whether the shape rules give a piece of the results for the pieces of the arguments.
bool RulesAccept(const FusedGroup& group, const std::vector<FusedVar>& vars, const FusedCut& cut) {
  const Trial trial(group, vars);
  const auto piece_of = [&](int64_t rows) {
    return [&cut, rows](const FusedVar& var) { return cut.PieceOf(var, rows); };
  };
  const FusedVar& out = vars.back();
  return trial.Holds(piece_of(cut.rows), cut.PieceOf(out, cut.rows)) &&
         trial.Holds(piece_of(cut.last_rows()), cut.PieceOf(out, cut.last_rows()));
}

// Whether each variable moves along all dims of the results from `first` on, or along none.
bool IsOneRun(const FusedCut& cut, int first, const std::vector<FusedVar>& vars) {
  return std::all_of(vars.begin(), vars.end(), [&](const FusedVar& var) {
    bool moves = false, stays = false;
    for (int d = first; d < cut.shape.rank(); ++d) {
      if (cut.shape[d] != 1) (cut.StepOf(var, d) != 0 ? moves : stays) = true;
    }
    return !(moves && stays);
  });
}

}  // namespace

bool FindCut(const FusedGroup& group, int64_t elements, std::vector<FusedVar>& vars,
             FusedCut* cut) {
  const auto result =
      std::find_if(vars.begin(), vars.end(), [](const FusedVar& var) { return var.argument < 0; });
  if (result == vars.end() || result->meta.shape.rank() == 0 || result->meta.shape.numel() == 0)
    return false;
  const Shape shape = result->meta.shape;
  for (const FusedVar& var : vars) {
    if (var.argument < 0 && !(var.meta.shape == shape)) return false;
  }
  *cut = FusedCut();
  cut->shape = shape;
  if (OneShape(vars, shape)) {  // by the trait Elementwise, positions do not matter
    cut->flat = true;
    for (int i = 0; i < shape.rank(); ++i) cut->shape[i] = 1;
    cut->shape[shape.rank() - 1] = shape.numel();
    cut->dim = shape.rank() - 1;
  } else if (!Alignment(group, shape, vars).Find()) {
    return false;
  }
  ChooseRows(elements, cut);
  return RulesAccept(group, vars, *cut);
}

bool CutIntoRuns(const FusedGroup& group, int64_t elements, const std::vector<FusedVar>& vars,
                 FusedCut* cut) {
  if (cut->flat) return false;
  FusedCut runs = *cut;
  const int rank = runs.shape.rank();
  int first = rank;  // dim of the runs
  while (first > 0 && IsOneRun(runs, first - 1, vars)) --first;
  if (first == 0 || runs.shape.Product(first, rank) < elements) return false;
  runs.dim = first - 1;
  runs.rows = 1;
  runs.chunks = runs.shape[runs.dim];
  runs.outer = runs.shape.Product(0, runs.dim);
  if (!RulesAccept(group, vars, runs)) return false;
  *cut = runs;
  return true;
}

}  // namespace coracle::inline internal
