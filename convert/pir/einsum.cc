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

class Einsum {
 public:
  Einsum(ProgramBuilder& builder, const Op& op) : builder_(builder), op_(op) {}

  void Run() {
    Parse();
    Term all = terms_[0];
    for (size_t i = 1; i < terms_.size(); ++i) {
      Labels later = output_;
      for (size_t k = i + 1; k < terms_.size(); ++k) later += terms_[k].labels;
      all = Product(all, terms_[i], later);
    }
    Give(all);
  }

 private:
  [[noreturn]] void Refuse(const std::string& why) const {
    builder_.Refuse(op_, fmt::format("the equation {} {}", Quote(equation_), why));
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

  // Notes the sizes of a term's dims. A dim of 1 is not broadcast here.
  void NoteSizes(const Labels& labels, const Shape& shape) {
    if (static_cast<int>(labels.size()) != shape.rank())
      Refuse("does not fit the ranks of its operands");
    for (size_t i = 0; i < labels.size(); ++i) {
      const int64_t size = shape[static_cast<int>(i)];
      if (size == 0) Refuse("has an operand without elements");
      if (std::count(labels.begin(), labels.end(), labels[i]) > 1)
        Refuse("has a label twice in one operand, a diagonal");
      int64_t& known = sizes_.emplace(labels[i], size).first->second;
      if (known >= 0 && size >= 0 && known != size)
        Refuse(fmt::format("has dims of {} and {} for one label", known, size));
      known = std::max(known, size);
    }
  }

  void Parse() {
    equation_ = Get<std::string>(builder_, op_, "equation", "");
    std::string text = equation_;
    std::erase(text, ' ');
    const size_t arrow = text.find("->");
    RequireCharacters(text.substr(0, arrow) + (arrow == text.npos ? "" : text.substr(arrow + 2)));
    const ValuePtr list = Needed(builder_, op_, 0);
    if (list->type.kind != Type::Kind::kList || list->items.empty())
      builder_.Refuse(op_, "its operand is no list of tensors");
    const std::vector<std::string> parts = PartsOf(text.substr(0, arrow));
    if (parts.size() != list->items.size()) Refuse("has another number of terms than operands");
    int most = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const ValuePtr& item = list->items[i];
      if (item->type.kind != Type::Kind::kTensor || !IsFloating(item->type.dtype))
        builder_.Refuse(op_, "an operand is no tensor of floats");
      const int rank = item->type.shape.rank();
      terms_.push_back({builder_.VarOf(op_, item), LabelsOf(parts[i], rank)});
      NoteSizes(terms_.back().labels, item->type.shape);
      if (Has(parts[i], '.')) most = std::max(most, rank - static_cast<int>(parts[i].size()) + 3);
    }
    const std::string out = arrow == text.npos ? ImplicitOutput() : text.substr(arrow + 2);
    output_ = LabelsOf(out, most + static_cast<int>(out.size()) - 3);
    for (char label : output_) {
      if (sizes_.count(label) == 0 || std::count(output_.begin(), output_.end(), label) > 1)
        Refuse("has an output label twice, or one that no operand has");
    }
    for (const auto& [label, size] : sizes_)
      if (label <= '9' && !Has(output_, label))
        Refuse("leaves the dims of '...' out of its output");
  }

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

  // The dims of "...", then the letters that occur once.
  Labels ImplicitOutput() const {
    Labels digits, letters;
    for (const auto& [label, size] : sizes_) {
      const auto count = std::count_if(terms_.begin(), terms_.end(), [l = label](const Term& term) {
        return Has(term.labels, l);
      });
      if (label <= '9')
        digits.insert(digits.begin(), label);
      else if (count == 1)
        letters += label;
    }
    return digits + letters;
  }

  std::string Make(const char* type, SlotList inputs, AttrList attrs = {}) {
    return builder_.writer().Make(type, std::move(inputs), std::move(attrs)).name();
  }

  // Sums over labels that nothing else has.
  Term Summed(const Term& term, const Labels& others) {
    std::vector<int32_t> axes;
    Term left{term.var, ""};
    for (size_t i = 0; i < term.labels.size(); ++i) {
      if (Has(others, term.labels[i]))
        left.labels += term.labels[i];
      else
        axes.push_back(static_cast<int32_t>(i));
    }
    if (axes.empty()) return term;
    // A sum over all labels has the shape [1] here.
    const bool all = left.labels.empty();
    left.var = Make("reduce_sum", {{"X", {term.var}}}, {{"dim", axes}, {"reduce_all", all}});
    return left;
  }

  static std::vector<int32_t> OrderOf(const Labels& from, const Labels& to) {
    std::vector<int32_t> order;
    for (char label : to) order.push_back(static_cast<int32_t>(from.find(label)));
    return order;
  }
  std::string InOrder(const std::string& x, const Labels& from, const Labels& to) {
    return from == to ? x : Make("transpose2", {{"X", {x}}}, {{"axis", OrderOf(from, to)}});
  }

  int64_t SizeOf(const Labels& labels) const {
    int64_t size = 1;
    for (char label : labels) {
      if (sizes_.at(label) < 0) return -1;
      size *= sizes_.at(label);
      if (size > INT32_MAX) Refuse("joins dims to one that is too large");
    }
    return size;
  }

  // x, whose dims are those of `kept` and then others, with these sizes of the others. A single one
  // of them may be unknown.
  std::string Reshape(const std::string& x, const Labels& kept, const std::vector<int64_t>& sizes) {
    std::vector<int64_t> dims(kept.size(), 0);  // 0: as it is
    dims.insert(dims.end(), sizes.begin(), sizes.end());
    if (std::count(dims.begin(), dims.end(), -1) > 1)
      Refuse("joins or parts dims that are unknown");
    return Make("reshape2", {{"X", {x}}}, {{"shape", ToInt32(dims, "a size")}});
  }

  // The labels of the result are those of both, of the first operand alone, of the second alone.
  Term Product(const Term& first, const Term& second, const Labels& later) {
    const Term a = Summed(first, second.labels + later), b = Summed(second, first.labels + later);
    Labels batch, summed, left, right;
    for (char label : a.labels)
      (!Has(b.labels, label) ? left : Has(later, label) ? batch : summed) += label;
    for (char label : b.labels)
      if (!Has(a.labels, label)) right += label;
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
    for (char label : keeps_left ? right : left + right) sizes.push_back(sizes_.at(label));
    if (product.labels.empty()) sizes = {1};
    product.var = Reshape(product.var, keeps_left ? left : batch, sizes);
    return product;
  }

  void Give(const Term& all) {
    const Term term = Summed(all, output_);
    if (term.labels == output_)
      return builder_.Append(op_, "assign", {{"X", {term.var}}}, {{"Out", 0}});
    builder_.Append(op_, "transpose2", {{"X", {term.var}}}, {{"Out", 0}},
                    {{"axis", OrderOf(term.labels, output_)}});
  }

  ProgramBuilder& builder_;
  const Op& op_;
  std::string equation_;
  std::vector<Term> terms_;
  Labels output_;
  std::map<char, int64_t> sizes_;  // -1: unknown
};

}  // namespace

void ReadEinsum(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"equation"});
  Einsum(builder, op).Run();
}

}  // namespace coracle::pir
