#include <coracle/backward/backward.h>
#include <coracle/backward/open_types.h>
#include <coracle/backward/verify_program.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/program.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace coracle {
namespace {

// The ops of a block at some time, by address, since backward may insert ops between them later.
class OldOps {
 public:
  explicit OldOps(const BlockDesc& block) {
    for (size_t i = 0; i < block.NumOps(); ++i) ops_.insert(&block.op(i));
  }
  bool Has(const OpDesc& op) const { return ops_.count(&op) > 0; }

 private:
  std::unordered_set<const OpDesc*> ops_;
};

// Writes second-derivative ops to the block of y.
struct Setup {
  Writer writer;
  GradientsOptions options;

  BlockDesc& block() const { return writer.block(); }
  // Gives the result of the last op a name derived from x.
  Variable Named(const Variable& x, const char* suffix, const Variable& made) const {
    return writer.Named(x.name() + suffix, made);
  }
  std::string NewVar(const std::string& stem) const {
    std::string name = block().program().FreeName(stem);
    block().Var(name);
    return name;
  }
};

[[noreturn]] void Refuse(const char* who, const std::string& what) {
  ThrowInvalid(std::string(who) + ": " + what);
}

ProgramDesc& ProgramOf(const char* who, const Variable& y) {
  if (!y) Refuse(who, "y is an empty Variable");
  return y.program();
}

Setup MakeSetup(const char* who, const Variable& y, const std::vector<Variable>& xs,
                const HessianOptions& options) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  ProgramDesc& program = y.program();
  internal::RequireBlocks(program, ops);
  internal::OpenTypes open(program, ops);
  open.FillWhereOpen();
  open.Commit();
  if (!y.shape().IsKnown() || y.shape().numel() != 1) {
    Refuse(who, fmt::format("y must hold one element, the shape of {} is {}; reduce it by mean or "
                            "reduce_sum",
                            Quote(y.name()), y.shape().ToString()));
  }
  for (const Variable& x : xs) {
    if (!x) Refuse(who, "an x is an empty Variable");
  }
  GradientsOptions gradients;
  gradients.no_grad_set = options.no_grad_set;
  gradients.ops = &ops;
  const auto name = [&program](const std::string& hint) { return program.FreeName(hint); };
  return {Writer(internal::BlockOf(y), ops, {.role = kBackward, .name = name}), gradients};
}

void ReplaceCalls(const Setup& setup) {
  if (!setup.block().parent()) internal::ReplaceCalls(setup.block().program(), setup.writer.ops());
}

void CheckShapes(const char* who, const std::vector<Variable>& xs) {
  for (const Variable& x : xs) {
    const std::string name = Quote(x.name()), shape = x.shape().ToString();
    if (!x.shape().IsKnown()) {
      Refuse(who, fmt::format("the shape of {} must be known when the program is built, it is {}",
                              name, shape));
    }
    if (2 * x.shape().rank() > Shape::kMaxRank) {
      Refuse(who, fmt::format("{} has shape {}: a Hessian would have more than {} dimensions", name,
                              shape, Shape::kMaxRank));
    }
  }
}

void CheckVectors(const char* who, const std::vector<Variable>& xs,
                  const std::vector<Variable>& v) {
  if (v.size() != xs.size())
    Refuse(who, fmt::format("got {} vectors for {} xs", v.size(), xs.size()));
  for (size_t k = 0; k < v.size(); ++k) {
    if (!v[k]) Refuse(who, "a vector is an empty Variable");
    if (v[k].dtype() == xs[k].dtype() && v[k].shape().CompatibleWith(xs[k].shape())) continue;
    Refuse(who, fmt::format("the vector {} is {}, its x {} is {}", Quote(v[k].name()),
                            v[k].desc().meta().ToString(), Quote(xs[k].name()),
                            xs[k].desc().meta().ToString()));
  }
}

// The sum over j of d2y / dxs[k] dxs[j] v[j], given the names of the vectors.
std::vector<std::string> Product(const Setup& setup, const std::vector<Variable>& xs,
                                 const std::vector<std::string>& first,
                                 const std::vector<Variable>& v) {
  std::vector<Variable> targets;
  GradientsOptions options = setup.options;
  for (size_t j = 0; j < first.size(); ++j) {
    if (first[j].empty()) continue;
    targets.push_back(Variable::Of(setup.block(), first[j]));
    options.target_gradients.push_back(v[j].name());
  }
  if (targets.empty()) return first;
  std::vector<std::string> product = Gradients(targets, xs, options);
  for (size_t k = 0; k < product.size(); ++k) {
    if (!product[k].empty() || first[k].empty()) continue;
    const Variable zeros = ZerosLike(setup.writer.Var(xs[k].name()));
    product[k] = setup.Named(xs[k], "@PRODUCT", zeros).name();
  }
  return product;
}

// The n unit vectors of x's shape and dtype: the rows of a unit matrix.
std::vector<std::string> UnitVectors(const Setup& setup, const Variable& x, int64_t n) {
  const Writer& w = setup.writer;
  std::vector<int64_t> ids;
  std::vector<int32_t> dims = {static_cast<int32_t>(n)};
  for (int64_t i = 0; i < n; ++i) ids.push_back(i);
  for (int64_t dim : x.shape()) dims.push_back(static_cast<int32_t>(dim));
  const Variable index =
      setup.Named(x, "@INDEX",
                  w.Make("assign_value", {},
                         {{"shape", std::vector<int32_t>{static_cast<int32_t>(n)}},
                          {"dtype", static_cast<int32_t>(DType::kInt64)},
                          {"int64_values", ids}}));
  const Variable unit = setup.Named(
      x, "@UNIT",
      w.Make("one_hot_v2", {{"X", {index.name()}}},
             {{"depth", static_cast<int32_t>(n)}, {"dtype", static_cast<int32_t>(x.dtype())}}));
  const Variable shaped = setup.Named(x, "@UNIT", Reshape(unit, dims));
  std::vector<std::string> vectors;
  for (int64_t i = 0; i < n; ++i) vectors.push_back(setup.NewVar(x.name() + "@UNIT"));
  w.Append("unstack", {{"X", {shaped.name()}}}, {{"Y", vectors}},
           {{"axis", int32_t{0}}, {"num", static_cast<int32_t>(n)}});
  return vectors;
}

std::vector<const OpDesc*> OpsThatDependOn(const BlockDesc& block, const std::string& name,
                                           const OldOps& before) {
  std::unordered_set<std::string> names = {name};
  std::vector<const OpDesc*> ops;
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    if (before.Has(op)) continue;
    if (!op.AnyInput([&](const std::string& read) { return names.count(read) > 0; })) continue;
    ops.push_back(&op);
    op.ForEachOutput([&](const std::string& written) { names.insert(written); });
  }
  return ops;
}

// Appends the ops once more, reading `to` instead of `from`. Returns the new name of `result`.
std::string AppendCopies(const Setup& setup, const std::vector<const OpDesc*>& ops,
                         const std::string& from, const std::string& to,
                         const std::string& result) {
  BlockDesc& block = setup.block();
  std::unordered_map<std::string, std::string> renamed = {{from, to}};
  auto known = [&](const std::string& name) {
    auto it = renamed.find(name);
    return it == renamed.end() ? name : it->second;
  };
  auto made = [&](const std::string& name) {
    if (auto it = renamed.find(name); it != renamed.end()) return it->second;
    const VarMeta meta = block.FindVarRecursive(name)->meta();
    const std::string& copy = renamed[name] = setup.NewVar(name);
    block.FindVar(copy)->SetMeta(meta);
    return copy;
  };
  for (const OpDesc* op : ops) {
    OpDesc copy(op->type(), op->inputs(), op->outputs(), op->attrs());
    copy.RenameInputs(known);
    copy.RenameOutputs(made);
    block.AppendOp(copy);
  }
  return known(result);
}

// The gradient of <first, vector> with respect to x for each vector; empty if `first` does not
// depend on x.
std::vector<std::string> HessianRows(const Setup& setup, const Variable& x,
                                     const std::string& first,
                                     const std::vector<std::string>& vectors) {
  const Variable target = Variable::Of(setup.block(), first);
  auto row = [&](const std::string& vector) {
    GradientsOptions options = setup.options;
    options.target_gradients = {vector};
    return Gradients({target}, {x}, options)[0];
  };
  const OldOps before(setup.block());
  std::vector<std::string> rows = {row(vectors[0])};
  if (rows[0].empty()) return {};
  const std::vector<const OpDesc*> dependent = OpsThatDependOn(setup.block(), vectors[0], before);
  const bool has_sub_block = std::any_of(dependent.begin(), dependent.end(),
                                         [](const OpDesc* op) { return op->HasSubBlock(); });
  for (size_t k = 1; k < vectors.size(); ++k) {
    rows.push_back(has_sub_block ? row(vectors[k])
                                 : AppendCopies(setup, dependent, vectors[0], vectors[k], rows[0]));
  }
  return rows;
}

// The Hessian with respect to x alone; `first` is the gradient of x.
std::string Matrix(const Setup& setup, const Variable& x, const std::string& first) {
  if (first.empty()) return "";
  const Writer& w = setup.writer;
  const int64_t n = x.shape().numel();
  std::vector<int64_t> dims = x.shape().ToVector();
  dims.insert(dims.end(), x.shape().begin(), x.shape().end());
  const std::vector<std::string> rows =
      n > 0 ? HessianRows(setup, x, first, UnitVectors(setup, x, n)) : std::vector<std::string>();
  if (rows.empty())
    return setup.Named(x, "@HESSIAN", FillConstant(w, x.dtype(), 0, Shape(dims))).name();
  const Variable stacked =
      setup.Named(x, "@ROWS", w.Make("stack", {{"X", rows}}, {{"axis", int32_t{0}}}, "Y"));
  return setup.Named(x, "@HESSIAN", Reshape(stacked, {dims.begin(), dims.end()})).name();
}

}  // namespace

std::vector<std::string> Hessian(const Variable& y, const std::vector<Variable>& xs,
                                 const HessianOptions& options) {
  const char* who = "hessian";
  const EditGuard guard(ProgramOf(who, y));
  const Setup setup = MakeSetup(who, y, xs, options);
  CheckShapes(who, xs);
  ReplaceCalls(setup);
  const std::vector<std::string> first = Gradients({y}, xs, setup.options);
  std::vector<std::string> result;
  for (size_t k = 0; k < xs.size(); ++k) result.push_back(Matrix(setup, xs[k], first[k]));
  return result;
}

std::vector<std::string> HessianVectorProduct(const Variable& y, const std::vector<Variable>& xs,
                                              const std::vector<Variable>& v,
                                              const HessianOptions& options) {
  const char* who = "hessian_vector_product";
  const EditGuard guard(ProgramOf(who, y));
  const Setup setup = MakeSetup(who, y, xs, options);
  CheckVectors(who, xs, v);
  ReplaceCalls(setup);
  return Product(setup, xs, Gradients({y}, xs, setup.options), v);
}

}  // namespace coracle
