// Einsum: combines two operands at a time by a matrix product, or by an elementwise product if
// nothing is summed.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace coracle::onnx {
namespace {

// A letter, or kEllipsis + k for the k-th dim, from the end, of the dims of `...`.
using Labels = std::vector<int>;
constexpr int kEllipsis = 256;

struct Operand {
  Variable x;  // [1] without labels
  Labels labels;
  int64_t DimOf(int label) const {
    return x
        .shape()[static_cast<int>(std::find(labels.begin(), labels.end(), label) - labels.begin())];
  }
};

bool Has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

Labels operator+(Labels a, const Labels& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The labels of a term; `...` becomes `ellipsis` labels.
Labels ParseTerm(NodeContext& node, const std::string& term, int ellipsis) {
  Labels labels;
  bool seen = false;
  for (size_t i = 0; i < term.size(); ++i) {
    const char c = term[i];
    if (c == '.') {
      node.Require(!seen && term.compare(i, 3, "...") == 0, "attribute equation has a lone '.'");
      seen = true;
      i += 2;
      for (int k = ellipsis - 1; k >= 0; --k) labels.push_back(kEllipsis + k);
    } else {
      node.Require((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'),
                   fmt::format("attribute equation has the character '{}'", c));
      labels.push_back(c);
    }
  }
  return labels;
}

struct Equation {
  std::vector<Labels> inputs;
  Labels output;
};

// Without "->" the output has the dims of `...`, then the labels that occur once, in order.
Labels ImplicitOutput(const std::vector<Labels>& inputs, int ellipsis) {
  std::map<int, int> counts;
  for (const Labels& labels : inputs)
    for (int label : labels) ++counts[label];
  Labels output;
  for (int k = ellipsis - 1; k >= 0; --k) output.push_back(kEllipsis + k);
  for (const auto& [label, count] : counts)
    if (label < kEllipsis && count == 1) output.push_back(label);
  return output;
}

std::vector<std::string> SplitTerms(const std::string& text) {
  std::vector<std::string> terms(1);
  for (char c : text) c == ',' ? terms.emplace_back() : (terms.back() += c, terms.back());
  return terms;
}

Equation ParseEquation(NodeContext& node) {
  std::string text = node.String("equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const size_t arrow = text.find("->");
  const std::vector<std::string> terms = SplitTerms(text.substr(0, arrow));
  node.Require(
      terms.size() == node.NumInputs(),
      fmt::format("attribute equation has {} terms for {} inputs", terms.size(), node.NumInputs()));
  int ellipsis = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].find('.') == std::string::npos) continue;
    ellipsis = std::max(ellipsis, node.rank(i) - static_cast<int>(terms[i].size()) + 3);
  }
  Equation equation;
  for (size_t i = 0; i < terms.size(); ++i) {
    const bool dots = terms[i].find('.') != std::string::npos;
    const int stands_for = dots ? node.rank(i) - static_cast<int>(terms[i].size()) + 3 : 0;
    node.Require(stands_for >= 0, "attribute equation has more labels than an input has dims");
    equation.inputs.push_back(ParseTerm(node, terms[i], stands_for));
    node.Require(static_cast<int>(equation.inputs.back().size()) == node.rank(i),
                 fmt::format("attribute equation has {} labels for input {} of rank {}",
                             equation.inputs.back().size(), i, node.rank(i)));
  }
  equation.output = arrow == std::string::npos ? ImplicitOutput(equation.inputs, ellipsis)
                                               : ParseTerm(node, text.substr(arrow + 2), ellipsis);
  for (int label : equation.output) {
    node.Require(std::any_of(equation.inputs.begin(), equation.inputs.end(),
                             [&](const Labels& labels) { return Has(labels, label); }),
                 "attribute equation has a label of the output that no input has");
    node.Require(std::count(equation.output.begin(), equation.output.end(), label) == 1,
                 "attribute equation has a label twice in the output");
  }
  return equation;
}

// For a label that an operand has twice: takes the elements with equal indices.
void TakeDiagonals(NodeContext& node, Operand& operand) {
  for (size_t j = 1; j < operand.labels.size(); ++j) {
    const auto begin = operand.labels.begin();
    const auto first = std::find(begin, begin + static_cast<int64_t>(j), operand.labels[j]);
    if (first == begin + static_cast<int64_t>(j)) continue;
    const int i = static_cast<int>(first - begin), at = static_cast<int>(j);
    const int64_t n = operand.x.shape()[at];
    if (n < 0 || operand.x.shape()[i] < 0)
      node.RefuseUnknown("the length of a diagonal", "the places of its elements");
    node.Require(n == operand.x.shape()[i], "a label stands for dims of different length");
    Variable x = MoveAxis(node, MoveAxis(node, operand.x, i, -1), at - 1, -1);
    Shape joined(std::span<const int64_t>(x.shape().begin(), x.shape().rank() - 2));
    joined.Append(n * n);
    std::vector<int64_t> places;
    RequireSmallConstant(node, {n}, "a diagonal");
    for (int64_t k = 0; k < n; ++k) places.push_back(k * (n + 1));
    x = node.Make(
        "gather",
        {{"X", {Reshaped(node, x, joined).name()}}, {"Index", {node.ConstantVar(places).name()}}},
        {{"axis", joined.rank() - 1}});
    operand.x = MoveAxis(node, x, -1, i);
    operand.labels.erase(operand.labels.begin() + at);
    --j;
  }
}

using KeptLabels = std::function<bool(int label)>;

void SumOut(NodeContext& node, Operand& operand, const KeptLabels& kept) {
  std::vector<int32_t> dims;
  Labels left;
  for (size_t i = 0; i < operand.labels.size(); ++i) {
    if (kept(operand.labels[i]))
      left.push_back(operand.labels[i]);
    else
      dims.push_back(static_cast<int>(i));
  }
  if (dims.empty()) return;
  operand.x = node.UnaryVia("reduce_sum", operand.x, {{"dim", dims}, {"reduce_all", left.empty()}});
  operand.labels = left;
}

// The operand's dims in the order `order`, with 1 for missing dims.
Variable Arranged(NodeContext& node, const Operand& operand, const Labels& order) {
  std::vector<int32_t> perm, missing;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto found = std::find(operand.labels.begin(), operand.labels.end(), order[i]);
    if (found == operand.labels.end())
      missing.push_back(static_cast<int>(i));
    else
      perm.push_back(static_cast<int>(found - operand.labels.begin()));
  }
  Variable x = operand.x;
  if (operand.labels.empty()) return x;
  if (!std::is_sorted(perm.begin(), perm.end())) x = node.Transpose(x, perm);
  return missing.empty() ? x : node.WithXShape("unsqueeze2", x, {{"axes", missing}});
}

// The labels that two operands share and keep.
struct Roles {
  Labels batch, summed, left, right;
};

Roles RolesOf(const Operand& a, const Operand& b, const KeptLabels& kept) {
  Roles roles;
  for (int label : a.labels)
    (!Has(b.labels, label) ? roles.left
     : kept(label)         ? roles.batch
                           : roles.summed)
        .push_back(label);
  for (int label : b.labels)
    if (!Has(a.labels, label)) roles.right.push_back(label);
  return roles;
}

// The product of the dims of some labels; nullopt if one of them is unknown.
std::optional<int64_t> Size(const Operand& operand, const Labels& labels) {
  int64_t size = 1;
  for (int label : labels) {
    if (operand.DimOf(label) < 0) return std::nullopt;
    size *= operand.DimOf(label);
  }
  return size;
}

bool FitsMatmul(const Operand& a, const Operand& b, const Roles& roles) {
  if (roles.summed.empty()) return false;
  for (int label : roles.summed)
    if (a.DimOf(label) != b.DimOf(label)) return false;
  const auto known = [](const Operand& operand, const Labels& labels) {
    return labels.size() == 1 || Size(operand, labels).has_value();
  };
  const auto no_open = [](const Operand& operand, const Labels& labels) {
    return std::none_of(labels.begin(), labels.end(),
                        [&](int label) { return operand.DimOf(label) < 0; });
  };
  // Joining dims needs a shape with at most one unknown dim.
  return known(a, roles.left) && known(a, roles.summed) && known(b, roles.right) &&
         no_open(a, roles.batch) && no_open(b, roles.batch);
}

// An operand as [batch.., rows, columns]; each group of labels is joined to one dim.
Variable AsMatrices(NodeContext& node, const Operand& operand, const Labels& batch,
                    const Labels& rows, const Labels& columns) {
  const Variable x = Arranged(node, operand, batch + rows + columns);
  if (rows.size() == 1 && columns.size() == 1) return x;
  Shape shape;
  for (int label : batch) shape.Append(operand.DimOf(label));
  shape.Append(Size(operand, rows).value_or(-1));
  shape.Append(Size(operand, columns).value_or(-1));
  return Reshaped(node, x, shape);
}

Operand MatrixProduct(NodeContext& node, const Operand& a, const Operand& b, const Roles& roles) {
  const Variable x = AsMatrices(node, a, roles.batch, roles.left, roles.summed);
  const Variable y = AsMatrices(node, b, roles.batch, roles.summed, roles.right);
  Operand out{node.Binary("matmul_v2", x, y), roles.batch + roles.left + roles.right};
  if (roles.left.size() == 1 && roles.right.size() == 1) return out;
  Shape shape;
  for (int label : roles.batch) shape.Append(std::max(a.DimOf(label), b.DimOf(label)));
  for (int label : roles.left) shape.Append(a.DimOf(label));
  for (int label : roles.right) shape.Append(b.DimOf(label));
  if (shape.rank() == 0) shape.Append(1);
  out.x = Reshaped(node, out.x, shape);
  return out;
}

Operand Combined(NodeContext& node, const Operand& a, const Operand& b, const KeptLabels& kept) {
  const Roles roles = RolesOf(a, b, kept);
  if (FitsMatmul(a, b, roles)) return MatrixProduct(node, a, b, roles);
  const Labels order = a.labels + roles.right;
  Operand out{Arranged(node, a, order) * Arranged(node, b, order), order};
  SumOut(node, out, kept);
  return out;
}

// The operands with a label: their number, and the last one.
struct LabelUse {
  int count = 0;
  size_t last = 0;
};

std::map<int, LabelUse> UsesOf(const Equation& equation) {
  std::map<int, LabelUse> uses;
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    for (int label : std::set<int>(equation.inputs[i].begin(), equation.inputs[i].end())) {
      ++uses[label].count;
      uses[label].last = i;
    }
  }
  return uses;
}

void ImportEinsum(NodeContext& node) {
  const Equation equation = ParseEquation(node);
  const DType own = node.dtype(0), dtype = node.ComputeDType("matmul_v2", own);
  const std::map<int, LabelUse> uses = UsesOf(equation);
  std::vector<Operand> operands;
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    Operand operand{node.Cast(node.In(i), dtype), equation.inputs[i]};
    TakeDiagonals(node, operand);
    SumOut(node, operand,
           [&](int label) { return Has(equation.output, label) || uses.at(label).count > 1; });
    operands.push_back(operand);
  }
  Operand out = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    out = Combined(node, out, operands[i], [&](int label) {
      return Has(equation.output, label) || uses.at(label).last > i;
    });
  }
  const Variable result = node.Cast(Arranged(node, out, equation.output), own);
  if (result.name() == node.In(0).name()) return node.SetSame(0, 0);
  node.Set(0, result, equation.output.empty());
}

}  // namespace

void AddEinsumImporters(NodeImporters& importers) {
  importers.Add({.op_type = "Einsum",
                 .since = 12,
                 .takes = "n n*",
                 .import = ImportEinsum,
                 .maps_to = "transpose2, reshape2, matmul_v2; elementwise_mul, reduce_sum",
                 .unsigneds = Unsigned::kWraps,
                 .composed = true});
}

}  // namespace coracle::onnx
