#include <coracle/backward/backward.h>
#include <coracle/backward/open_types.h>
#include <coracle/backward/verify_program.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/program.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
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

class SecondOrder {
 public:
  SecondOrder(const char* who, const Variable& y, const std::vector<Variable>& xs,
              const HessianOptions& options)
      : who_(who),
        y_(y),
        xs_(xs),
        ops_(options.ops ? *options.ops : DefaultOps()),
        guard_(ProgramOf(y)) {
    options_.no_grad_set = options.no_grad_set;
    options_.ops = &ops_;
    internal::RequireBlocks(y.program(), ops_);
    internal::OpenTypes open(y.program(), ops_);
    open.FillWhereOpen();
    open.Commit();
    if (!y.shape().IsKnown() || y.shape().numel() != 1) {
      Throw(
          fmt::format("y must hold one element, the shape of {} is {}; reduce it by mean or "
                      "reduce_sum",
                      Quote(y.name()), y.shape().ToString()));
    }
    for (const Variable& x : xs) {
      if (!x) Throw("an x is an empty Variable");
    }
    ProgramDesc& program = y.program();
    writer_.emplace(internal::BlockOf(y), ops_,
                    WriterOptions{.role = kBackward, .name = [&program](const std::string& hint) {
                                    return program.FreeName(hint);
                                  }});
  }

  const Writer& writer() const { return *writer_; }
  BlockDesc& block() { return writer().block(); }

  [[noreturn]] void Throw(const std::string& what) const {
    ThrowInvalid(std::string(who_) + ": " + what);
  }

  ProgramDesc& ProgramOf(const Variable& y) const {
    if (!y) Throw("y is an empty Variable");
    return y.program();
  }

  void ReplaceCalls() {
    if (!block().parent()) internal::ReplaceCalls(block().program(), ops_);
  }

  void CheckShapes() const {
    for (const Variable& x : xs_) {
      const std::string name = Quote(x.name()), shape = x.shape().ToString();
      if (!x.shape().IsKnown()) {
        Throw(fmt::format("the shape of {} must be known when the program is built, it is {}", name,
                          shape));
      }
      if (2 * x.shape().rank() > Shape::kMaxRank) {
        Throw(fmt::format("{} has shape {}: a Hessian would have more than {} dimensions", name,
                          shape, Shape::kMaxRank));
      }
    }
  }

  void CheckVectors(const std::vector<Variable>& v) const {
    if (v.size() != xs_.size())
      Throw(fmt::format("got {} vectors for {} xs", v.size(), xs_.size()));
    for (size_t k = 0; k < v.size(); ++k) {
      if (!v[k]) Throw("a vector is an empty Variable");
      if (v[k].dtype() == xs_[k].dtype() && v[k].shape().CompatibleWith(xs_[k].shape())) continue;
      Throw(fmt::format("the vector {} is {}, its x {} is {}", Quote(v[k].name()),
                        v[k].desc().meta().ToString(), Quote(xs_[k].name()),
                        xs_[k].desc().meta().ToString()));
    }
  }

  std::vector<std::string> First() { return Gradients({y_}, xs_, options_); }

  // The sum over j of d2y / dxs[k] dxs[j] v[j], given the names of the vectors.
  std::vector<std::string> Product(const std::vector<std::string>& first,
                                   const std::vector<Variable>& v) {
    std::vector<Variable> targets;
    GradientsOptions options = options_;
    for (size_t j = 0; j < first.size(); ++j) {
      if (first[j].empty()) continue;
      targets.push_back(Variable::Of(block(), first[j]));
      options.target_gradients.push_back(v[j].name());
    }
    if (targets.empty()) return first;
    std::vector<std::string> product = Gradients(targets, xs_, options);
    for (size_t k = 0; k < product.size(); ++k) {
      if (!product[k].empty() || first[k].empty()) continue;
      product[k] = Named(xs_[k], "@PRODUCT", ZerosLike(writer().Var(xs_[k].name()))).name();
    }
    return product;
  }

  // The Hessian with respect to x alone; `first` is the gradient of x.
  std::string Matrix(const Variable& x, const std::string& first) {
    if (first.empty()) return "";
    const int64_t n = x.shape().numel();
    std::vector<int64_t> dims = x.shape().ToVector();
    dims.insert(dims.end(), x.shape().begin(), x.shape().end());
    const std::vector<std::string> rows =
        n > 0 ? Rows(x, first, UnitVectors(x, n)) : std::vector<std::string>();
    if (rows.empty())
      return Named(x, "@HESSIAN", FillConstant(writer(), x.dtype(), 0, Shape(dims))).name();
    const Variable stacked =
        Named(x, "@ROWS", writer().Make("stack", {{"X", rows}}, {{"axis", int32_t{0}}}, "Y"));
    return Named(x, "@HESSIAN", Reshape(stacked, {dims.begin(), dims.end()})).name();
  }

 private:
  // Gives the result of the last op a name derived from x.
  Variable Named(const Variable& x, const char* suffix, const Variable& made) const {
    return writer().Named(x.name() + suffix, made);
  }

  // The n unit vectors of x's shape and dtype: the rows of a unit matrix.
  std::vector<std::string> UnitVectors(const Variable& x, int64_t n) {
    std::vector<int64_t> ids;
    std::vector<int32_t> dims = {static_cast<int32_t>(n)};
    for (int64_t i = 0; i < n; ++i) ids.push_back(i);
    for (int64_t dim : x.shape()) dims.push_back(static_cast<int32_t>(dim));
    const Variable index =
        Named(x, "@INDEX",
              writer().Make("assign_value", {},
                            {{"shape", std::vector<int32_t>{static_cast<int32_t>(n)}},
                             {"dtype", static_cast<int32_t>(DType::kInt64)},
                             {"int64_values", ids}}));
    const Variable unit = Named(x, "@UNIT",
                                writer().Make("one_hot_v2", {{"X", {index.name()}}},
                                              {{"depth", static_cast<int32_t>(n)},
                                               {"dtype", static_cast<int32_t>(x.dtype())}}));
    const Variable shaped = Named(x, "@UNIT", Reshape(unit, dims));
    std::vector<std::string> vectors;
    for (int64_t i = 0; i < n; ++i) vectors.push_back(NewVar(x.name() + "@UNIT"));
    writer().Append("unstack", {{"X", {shaped.name()}}}, {{"Y", vectors}},
                    {{"axis", int32_t{0}}, {"num", static_cast<int32_t>(n)}});
    return vectors;
  }

  std::string NewVar(const std::string& stem) {
    std::string name = block().program().FreeName(stem);
    block().Var(name);
    return name;
  }

  // The gradient of <first, vector> with respect to x for each vector; empty if `first` does not
  // depend on x.
  std::vector<std::string> Rows(const Variable& x, const std::string& first,
                                const std::vector<std::string>& vectors) {
    const Variable target = Variable::Of(block(), first);
    auto row = [&](const std::string& vector) {
      GradientsOptions options = options_;
      options.target_gradients = {vector};
      return Gradients({target}, {x}, options)[0];
    };
    const OldOps before(block());
    std::vector<std::string> rows = {row(vectors[0])};
    if (rows[0].empty()) return {};
    const std::vector<const OpDesc*> dependent = OpsThatDependOn(vectors[0], before);
    const bool has_sub_block = std::any_of(dependent.begin(), dependent.end(),
                                           [](const OpDesc* op) { return op->HasSubBlock(); });
    for (size_t k = 1; k < vectors.size(); ++k) {
      rows.push_back(has_sub_block ? row(vectors[k])
                                   : Copy(dependent, vectors[0], vectors[k], rows[0]));
    }
    return rows;
  }

  std::vector<const OpDesc*> OpsThatDependOn(const std::string& name, const OldOps& before) {
    std::unordered_set<std::string> names = {name};
    std::vector<const OpDesc*> ops;
    for (size_t i = 0; i < block().NumOps(); ++i) {
      const OpDesc& op = block().op(i);
      if (before.Has(op)) continue;
      if (!op.AnyInput([&](const std::string& read) { return names.count(read) > 0; })) continue;
      ops.push_back(&op);
      op.ForEachOutput([&](const std::string& written) { names.insert(written); });
    }
    return ops;
  }

  // Appends the ops once more, reading `to` instead of `from`. Returns the new name that `result`
  // has.
  std::string Copy(const std::vector<const OpDesc*>& ops, const std::string& from,
                   const std::string& to, const std::string& result) {
    std::unordered_map<std::string, std::string> renamed = {{from, to}};
    auto known = [&](const std::string& name) {
      auto it = renamed.find(name);
      return it == renamed.end() ? name : it->second;
    };
    auto made = [&](const std::string& name) {
      if (auto it = renamed.find(name); it != renamed.end()) return it->second;
      const VarMeta meta = block().FindVarRecursive(name)->meta();
      const std::string& copy = renamed[name] = NewVar(name);
      block().FindVar(copy)->SetMeta(meta);
      return copy;
    };
    for (const OpDesc* op : ops) {
      OpDesc copy(op->type(), op->inputs(), op->outputs(), op->attrs());
      copy.RenameInputs(known);
      copy.RenameOutputs(made);
      block().AppendOp(copy);
    }
    auto it = renamed.find(result);
    return it == renamed.end() ? result : it->second;
  }

  const char* who_;
  const Variable& y_;
  const std::vector<Variable>& xs_;
  const OpRegistry& ops_;
  const EditGuard guard_;
  GradientsOptions options_;
  std::optional<Writer> writer_;
};

}  // namespace

std::vector<std::string> Hessian(const Variable& y, const std::vector<Variable>& xs,
                                 const HessianOptions& options) {
  SecondOrder second("hessian", y, xs, options);
  second.CheckShapes();
  second.ReplaceCalls();
  const std::vector<std::string> first = second.First();
  std::vector<std::string> result;
  for (size_t k = 0; k < xs.size(); ++k) result.push_back(second.Matrix(xs[k], first[k]));
  return result;
}

std::vector<std::string> HessianVectorProduct(const Variable& y, const std::vector<Variable>& xs,
                                              const std::vector<Variable>& v,
                                              const HessianOptions& options) {
  SecondOrder second("hessian_vector_product", y, xs, options);
  second.CheckVectors(v);
  second.ReplaceCalls();
  std::vector<std::string> product = second.Product(second.First(), v);
  return product;
}

}  // namespace coracle
