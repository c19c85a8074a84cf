// Computes ops that give the same result only once: equal types and attrs, and inputs with
// equal values.

#include <coracle/passes/passes.h>
#include <coracle/passes/remarks.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <variant>

namespace coracle::inline internal {
namespace {

// Ops without inputs compute larger outputs again, because keeping the output until its last reader
// would cost more than filling it again.
constexpr int64_t kMaxConstantElements = 65536;

constexpr size_t kMaxCompared = 32;

// Whether attrs are equal bit by bit, because -0 is equal to 0 but gives other results.

template <class T>
bool HasSameBits(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, Complex>) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
  } else {
    return a == b;
  }
}
template <class... T>
bool HasSameBits(const std::variant<T...>& a, const std::variant<T...>& b);
bool HasSameBits(const Scalar& a, const Scalar& b) { return HasSameBits(a.value, b.value); }
template <class T>
bool HasSameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& x, const T& y) { return HasSameBits(x, y); });
}
template <class... T>
bool HasSameBits(const std::variant<T...>& a, const std::variant<T...>& b) {
  return a.index() == b.index() && std::visit(
                                       [&](const auto& value) {
                                         using V = std::decay_t<decltype(value)>;
                                         return HasSameBits(value, std::get<V>(b));
                                       },
                                       a);
}

class SubexpressionJoiner {
 public:
  SubexpressionJoiner(ProgramDesc& program, const PassContext& context)
      : context_(context), block_(program.Root()), flow_(program, context) {}

  void Run() {
    block_.ForEachOp([&](OpDesc& op) {
      if (MayBeJoined(op)) JoinOrNote(op);
      op.ForEachOutput([&](const std::string& name) { ++versions_[name]; });
    });
    flow_.Apply();
  }

 private:
  // Whether all outputs of the op are temporaries that it computes only from its inputs and attrs.
  bool MayBeJoined(const OpDesc& op) const {
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec || !IsFunction(*spec) || spec->FileOf(op) || op.HasSubBlock() ||
        flow_.IsRecomputed(op))
      return false;
    bool has_input = false, has_output = false;
    const bool other_input = op.AnyInput([&](const std::string& name) {
      has_input = true;
      const VarDesc* var = block_.FindVar(name);
      return !var || var->type() != VarType::kLoDTensor || op.Writes(name);
    });
    const bool other_output = op.AnyOutput([&](const std::string& name) {
      has_output = true;
      return !flow_.IsTemporary(name);
    });
    return has_output && !other_input && !other_output && (has_input || IsSmall(op));
  }

  bool IsSmall(const OpDesc& op) const {
    return !op.AnyOutput([&](const std::string& name) {
      const Shape& shape = block_.FindVar(name)->shape();
      return !shape.IsKnown() || shape.numel() > kMaxConstantElements;
    });
  }

  void JoinOrNote(const OpDesc& op) {
    const std::string key = KeyOf(op);
    std::vector<const OpDesc*>& same_key = seen_[key];
    // Compares with the latest ops only, for programs in which many ops of one type read the
    // same inputs.
    const size_t compared = std::min(same_key.size(), kMaxCompared);
    for (size_t i = 0; i < compared; ++i) {
      const OpDesc& first = *same_key[same_key.size() - 1 - i];
      if (HasSameAttrs(first, op) && HasSameOutputs(first, op) && Join(first, op)) return;
    }
    same_key.push_back(&op);
  }

  // The type, and the slots with the values of the inputs. Positions without a variable count.
  // Names may contain any character, so they are preceded by their length.
  std::string KeyOf(const OpDesc& op) const {
    std::string key = op.type();
    ForEachPosition(op.inputs(),
                    [&](const std::string& name, const std::string& slot, size_t index) {
                      const std::string& source = flow_.Source(name);
                      auto version = versions_.find(source);
                      key += '\n' + slot + ' ' + std::to_string(index) + ' ' +
                             std::to_string(version == versions_.end() ? 0 : version->second) +
                             ' ' + std::to_string(source.size()) + ' ' + source;
                    });
    return key;
  }

  static bool HasSameAttrs(const OpDesc& a, const OpDesc& b) {
    const auto has_all = [](const OpDesc& one, const OpDesc& other) {
      return std::all_of(one.attrs().begin(), one.attrs().end(), [&](const NamedAttr& attr) {
        if (IsBookkeepingAttr(attr.name)) return true;
        const Attribute* same = other.FindAttr(attr.name);
        return same && HasSameBits<>(static_cast<const AttributeVariant&>(*same),
                                     static_cast<const AttributeVariant&>(attr.value));
      });
    };
    return has_all(a, b) && has_all(b, a);
  }

  // Whether both have the same slots and numbers of outputs, with the same declared types (a shape
  // rule may read them).
  bool HasSameOutputs(const OpDesc& a, const OpDesc& b) const {
    std::vector<std::string> names;
    ForEachPosition(a.outputs(), [&](const std::string& name, const std::string& slot) {
      names.push_back(slot);
      names.push_back(name);
    });
    size_t at = 0;
    bool same = true;
    ForEachPosition(b.outputs(), [&](const std::string& name, const std::string& slot) {
      same = same && at < names.size() && names[at] == slot &&
             (IsEmptyName(name) ? IsEmptyName(names[at + 1]) : AreAlike(names[at + 1], name));
      at += 2;
    });
    return same && at == names.size();
  }
  bool AreAlike(const std::string& a, const std::string& b) const {
    if (IsEmptyName(a)) return false;
    const VarDesc *first = block_.FindVar(a), *second = block_.FindVar(b);
    return first->dtype() == second->dtype() && first->shape() == second->shape();
  }

  // Makes readers of the second op's outputs read the first op's outputs.
  bool Join(const OpDesc& first, const OpDesc& second) {
    // IsSame also considers writes in sub-blocks, which versions_ does not count.
    if (second.AnyInput([&](const std::string& name) {
          return !flow_.IsSame(flow_.Source(name), first, second);
        }))
      return false;
    std::vector<std::string> outputs;
    first.ForEachOutput([&](const std::string& name) { outputs.push_back(name); });
    size_t at = 0;
    second.ForEachOutput([&](const std::string& name) { flow_.Forward(name, outputs[at++]); });
    flow_.Remove(second);
    return true;
  }

  const PassContext& context_;
  BlockDesc& block_;
  ValueFlow flow_;
  std::unordered_map<std::string, int> versions_;  // number of writes so far, by variable
  std::unordered_map<std::string, std::vector<const OpDesc*>> seen_;
};

}  // namespace

void JoinCommonSubexpressions(ProgramDesc& program, const PassContext& context) {
  SubexpressionJoiner(program, context).Run();
}

}  // namespace coracle::inline internal
