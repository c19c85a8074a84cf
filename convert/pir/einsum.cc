// einsum: combines two operands at a time by a matrix product.

#include <coracle/convert/narrow.h>
#include <coracle/convert/pir/op_access.h>
#include <coracle/convert/pir/op_reader.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

namespace coracle::pir {
namespace {

// Letters; a digit k is the k-th dim from the end of the dims that "..." holds.
using Labels = std::string;

struct Term {
  std::string var;
  Labels labels;
};

bool Has(const Labels& labels, char label) { return labels.find(label) != labels.npos; }

struct Equation {
  std::vector<Term> terms;
  Labels output;
  std::map<char, int64_t> sizes;  // -1: unknown
};

[[noreturn]] void Refuse(const ProgramBuilder& builder, const Op& op, const std::string& why) {
  const auto equation = Get<std::string>(builder, op, "equation", "");
  builder.Refuse(op, fmt::format("the equation {} {}", Quote(equation), why));
}

class EquationReader {
 public:
  EquationReader(ProgramBuilder& builder, const Op& op) : builder_(builder), op_(op) {}

  Equation Run() {
    std::string text = Get<std::string>(builder_, op_, "equation", "");
    std::erase(text, ' ');
    const size_t arrow = text.find("->");
    const bool explicit_output = arrow != text.npos;
    RequireCharacters(text.substr(0, arrow) + (explicit_output ? text.substr(arrow + 2) : ""));
    const int most = ReadTerms(PartsOf(text.substr(0, arrow)));
    const std::string out = explicit_output ? text.substr(arrow + 2) : ImplicitOutput();
    equation_.output = LabelsOf(out, most + static_cast<int>(out.size()) - 3);
    CheckOutput();
    return std::move(equation_);
  }

 private:
  [[noreturn]] void Refuse(const std::string& why) const { pir::Refuse(builder_, op_, why); }

  // Letters, commas, and at most one "..." in each term.
  void RequireCharacters(const std::string& text) const {
    for (const char c : text) {
      if (!std::isalpha(static_cast<unsigned char>(c)) && c != ',' && c != '.')
        Refuse(fmt::format("has the character {}", Quote(std::string(1, c))));
    }
  }
  static std::vector<std::string> PartsOf(const std::string& text) {
    std::vector<std::string> parts(1);
    for (const char c : text) c == ',' ? parts.emplace_back() : (parts.back() += c, parts.back());
    return parts;
  }

  Labels LabelsOf(const std::string& text, int rank) const {
    const size_t dots = text.find("...");
    if (dots == text.npos && Has(text, '.')) Refuse("has a lone '.'");
    if (dots == text.npos) return text;
    const int held = rank - static_cast<int>(text.size()) + 3;
    if (held < 0 || held > Shape::kMaxRank) Refuse("does not fit the ranks of its operands");
    Labels labels = text.substr(0, dots);
    if (Has(text.substr(dots + 3), '.')) Refuse("has a lone '.'");
    for (int k = held - 1; k >= 0; --k) labels += static_cast<char>('0' + k);
    return labels + text.substr(dots + 3);
  }

  // Returns the largest number of dims that a "..." holds.
  int ReadTerms(const std::vector<std::string>& parts) {
    const ValuePtr list = Needed(builder_, op_, 0);
    if (list->type.kind != Type::Kind::kList || list->items.empty())
      builder_.Refuse(op_, "its operand must be a list of tensors");
    if (parts.size() != list->items.size()) Refuse("has another number of terms than operands");
    int most = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const ValuePtr& item = list->items[i];
      if (item->type.kind != Type::Kind::kTensor || !IsFloating(item->type.dtype))
        builder_.Refuse(op_, "an operand is not a floating-point tensor");
      const int rank = item->type.shape.rank();
      equation_.terms.push_back({builder_.VarOf(op_, item), LabelsOf(parts[i], rank)});
      NoteSizes(equation_.terms.back().labels, item->type.shape);
      if (Has(parts[i], '.')) most = std::max(most, rank - static_cast<int>(parts[i].size()) + 3);
    }
    return most;
  }

  // Notes the sizes of a term's dims. A dim of 1 is not broadcast here.
  void NoteSizes(const Labels& labels, const Shape& shape) {
    if (static_cast<int>(labels.size()) != shape.rank())
      Refuse("does not fit the ranks of its operands");
    for (size_t i = 0; i < labels.size(); ++i) {
      const int64_t size = shape[static_cast<int>(i)];
      if (size == 0) Refuse("has an operand without elements");
      const bool repeated = std::count(labels.begin(), labels.end(), labels[i]) > 1;
      if (repeated && size < 0)
        Refuse("has a label twice in one operand, and the length of that diagonal is unknown");
      int64_t& known = equation_.sizes.emplace(labels[i], size).first->second;
      if (known >= 0 && size >= 0 && known != size)
        Refuse(fmt::format("has dims of {} and {} for one label", known, size));
      known = std::max(known, size);
    }
  }

  // The dims of "...", then the letters that occur once.
  Labels ImplicitOutput() const {
    Labels digits, letters;
    for (const auto& [label, size] : equation_.sizes) {
      int64_t count = 0;
      for (const Term& term : equation_.terms)
        count += std::count(term.labels.begin(), term.labels.end(), label);
      if (label <= '9')
        digits.insert(digits.begin(), label);
      else if (count == 1)
        letters += label;
    }
    return digits + letters;
  }

  void CheckOutput() const {
    const Labels& output = equation_.output;
    for (char label : output) {
      if (equation_.sizes.count(label) == 0 || std::count(output.begin(), output.end(), label) > 1)
        Refuse("has an output label twice, or one that no operand has");
    }
    for (const auto& [label, size] : equation_.sizes)
      if (label <= '9' && !Has(output, label)) Refuse("leaves the dims of '...' out of its output");
  }

  ProgramBuilder& builder_;
  const Op& op_;
  Equation equation_;
};

// Writes the ops.
class EinsumWriter {
 public:
  EinsumWriter(ProgramBuilder& builder, const Op& op, const Equation& equation)
      : builder_(builder), op_(op), equation_(equation) {}

  void Run() {
    std::vector<Term> terms = equation_.terms;
    for (Term& term : terms) TakeDiagonals(term);
    Term all = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      Labels later = equation_.output;
      for (size_t k = i + 1; k < terms.size(); ++k) later += terms[k].labels;
      all = Product(all, terms[i], later);
    }
    Give(all);
  }

 private:
  std::string Make(const char* type, SlotList inputs, AttrList attrs = {}) {
    return builder_.writer().Make(type, std::move(inputs), std::move(attrs)).name();
  }

  // The elements with equal indices, for each label that the term has twice. They become the last
  // dim. The dims have one length, which NoteSizes knows.
  void TakeDiagonals(Term& term) {
    for (size_t second = 1; second < term.labels.size(); ++second) {
      const char label = term.labels[second];
      const size_t first = term.labels.find(label);
      if (first == second) continue;
      term.var = Make("diagonal", {{"Input", {term.var}}},
                      {{"axis1", ToInt32(static_cast<int64_t>(first), "an axis")},
                       {"axis2", ToInt32(static_cast<int64_t>(second), "an axis")}});
      term.labels.erase(second, 1);
      term.labels.erase(first, 1);
      term.labels += label;
      second = 0;
    }
  }

  // Sums over labels that nothing else has.
  Term Summed(const Term& term, const Labels& others) {
    std::vector<int32_t> axes;
    Term left{term.var, ""};
    for (size_t i = 0; i < term.labels.size(); ++i) {
      if (Has(others, term.labels[i]))
        left.labels += term.labels[i];
      else
        axes.push_back(ToInt32(static_cast<int64_t>(i), "an axis"));
    }
    if (axes.empty()) return term;
    // A sum over all labels has the shape [1] here.
    const bool all = left.labels.empty();
    left.var = Make("reduce_sum", {{"X", {term.var}}}, {{"dim", axes}, {"reduce_all", all}});
    return left;
  }

  static std::vector<int32_t> OrderOf(const Labels& from, const Labels& to) {
    std::vector<int32_t> order;
    for (char label : to)
      order.push_back(ToInt32(static_cast<int64_t>(from.find(label)), "an axis"));
    return order;
  }
  std::string InOrder(const std::string& x, const Labels& from, const Labels& to) {
    return from == to ? x : Make("transpose2", {{"X", {x}}}, {{"axis", OrderOf(from, to)}});
  }

  int64_t SizeOf(const Labels& labels) const {
    int64_t size = 1;
    for (char label : labels) {
      if (equation_.sizes.at(label) < 0) return -1;
      size *= equation_.sizes.at(label);
      if (size > INT32_MAX) Refuse(builder_, op_, "joins dims to one that is too large");
    }
    return size;
  }

  // x, which has the dims `kept` and then others, with these sizes of the others. A single one of
  // them may be unknown.
  std::string Reshape(const std::string& x, const Labels& kept, const std::vector<int64_t>& sizes) {
    std::vector<int64_t> dims(kept.size(), 0);  // 0: as it is
    dims.insert(dims.end(), sizes.begin(), sizes.end());
    if (std::count(dims.begin(), dims.end(), -1) > 1)
      Refuse(builder_, op_, "joins or parts dims that are unknown");
    return Make("reshape2", {{"X", {x}}}, {{"shape", ToInt32(dims, "a size")}});
  }

  // The result has the labels of both, then of the first operand alone, then of the second alone.
  Term Product(const Term& first, const Term& second, const Labels& later) {
    const Term a = Summed(first, second.labels + later), b = Summed(second, first.labels + later);
    Labels batch, summed, left, right;
    for (char label : a.labels)
      (!Has(b.labels, label) ? left : Has(later, label) ? batch : summed) += label;
    for (char label : b.labels)
      if (!Has(a.labels, label)) right += label;
    // Joined dims of unknown sizes would hide operands that do not fit.
    if (std::count_if(summed.begin(), summed.end(),
                      [&](char label) { return equation_.sizes.at(label) < 0; }) > 1)
      Refuse(builder_, op_, "sums over several dims that are unknown");
    std::string x = InOrder(a.var, a.labels, batch + left + summed);
    std::string y = InOrder(b.var, b.labels, batch + summed + right);
    // Without labels of both, a product takes any number of dims of the first operand.
    const bool keeps_left = batch.empty() && !left.empty();
    if (keeps_left && summed.size() != 1) x = Reshape(x, left, {SizeOf(summed)});
    if (!keeps_left && (left.size() != 1 || summed.size() != 1))
      x = Reshape(x, batch, {SizeOf(left), SizeOf(summed)});
    if (right.size() != 1 || summed.size() != 1)
      y = Reshape(y, batch, {SizeOf(summed), SizeOf(right)});
    Term product{Make("matmul_v2", {{"X", {x}}, {"Y", {y}}}), batch + left + right};
    if ((keeps_left || left.size() == 1) && right.size() == 1) return product;
    std::vector<int64_t> sizes;
    for (char label : keeps_left ? right : left + right) sizes.push_back(equation_.sizes.at(label));
    if (product.labels.empty()) sizes = {1};
    product.var = Reshape(product.var, keeps_left ? left : batch, sizes);
    return product;
  }

  void Give(const Term& all) {
    const Term term = Summed(all, equation_.output);
    if (term.labels == equation_.output)
      return builder_.Append(op_, "assign", {{"X", {term.var}}}, {{"Out", 0}});
    builder_.Append(op_, "transpose2", {{"X", {term.var}}}, {{"Out", 0}},
                    {{"axis", OrderOf(term.labels, equation_.output)}});
  }

  ProgramBuilder& builder_;
  const Op& op_;
  const Equation& equation_;
};

}  // namespace

void ReadEinsum(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"equation"});
  const Equation equation = EquationReader(builder, op).Run();
  EinsumWriter(builder, op, equation).Run();
}

}  // namespace coracle::pir
