#pragma once
// Patterns of ops, written like a listing of a program, and the search for them in a block.
// Internal to passes/.
//
//   const Pattern kConvBias(R"(
//     conv: Output=product = conv2d|depthwise_conv2d(Input=x, Filter=w)
//     add:  Out=y          = elementwise_add(X=product, Y=bias))");
//   const Matcher matcher(block, context);
//   Rewrites rewrites(block);
//   for (const Match& m : matcher.FindAll(kConvBias)) {
//     OpDesc fused = m.op("conv");
//     fused.SetInput("Bias", {m["bias"]});
//     fused.SetOutput("Output", {m["y"]});
//     rewrites.Replace(m, {fused});
//   }
//   rewrites.Apply();
//
// A line describes an op: its label, its outputs, its type (or one of several), its inputs. The
// name after a slot is the pattern's name for the variable in that slot. A match guarantees:
// * Each name is one variable. If no line writes it, a copy that was computed again
//   (recomputed_from) may replace its original.
// * Slots that the line does not list are absent, or are outputs that no op reads; `...` in a
//   list allows other slots. `Bias=b?` may be absent: see Match::Has.
// * A variable that one op of the pattern writes and another reads is written once, and is not
//   used outside the pattern. The other outputs of the pattern are also written once.
// * All ops may run at the position of the last one: until there, no other op writes what they
//   read, and no other op reads or writes what they write.
// The pass then checks types, attrs, shapes and constants in plain code.

#include <coracle/passes/pass.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle::inline internal {

class Pattern {
 public:
  // Throws InternalError if the text cannot be parsed. Each line must share a variable with the
  // lines before it.
  explicit Pattern(std::string_view text);

 private:
  friend class Matcher;
  friend class MatchSearch;
  struct Arg {
    std::string slot, name;
    bool optional = false;
  };
  struct Line {
    std::string label;
    std::vector<std::string> types;
    std::vector<Arg> inputs, outputs;
    bool more_inputs = false, more_outputs = false;
  };
  static Line Parse(std::string_view line);
  static std::vector<Arg> ParseArgs(std::string_view list, bool* more);

  std::vector<Line> lines_;
};

// One occurrence of a pattern in a block. Gives access to its ops by label and its variables by
// name; both throw InternalError for an unknown label or name.
class Match {
 public:
  OpDesc& op(std::string_view label) const;
  const std::string& operator[](std::string_view name) const;
  bool Has(std::string_view name) const;

 private:
  friend class MatchSearch;
  friend class Rewrites;
  // In the order of the search. Lists are faster than maps for so few elements.
  std::vector<std::pair<std::string, OpDesc*>> ops_;
  std::vector<std::pair<std::string, std::string>> vars_;
};

// The answers are valid until the block's ops change.
class Matcher {
 public:
  Matcher(BlockDesc& block, const PassContext& context);

  // Sorted by the ops that match the first line.
  std::vector<Match> FindAll(const Pattern& pattern) const;
  // The first match in which the names that `known` has denote the same variables as in `known`.
  std::optional<Match> Find(const Pattern& pattern, const Match& known) const;

  // nullptr for an undeclared variable.
  const Shape* ShapeOf(const std::string& var) const;
  const Tensor* Constant(const std::string& var) const { return context_.FrozenValue(var); }
  bool IsWrittenOnce(const std::string& var) const;
  // The op that wrote the value which `reader` reads: the only one that writes the variable, before
  // `reader`. nullptr if there is no such op.
  const OpDesc* WriterBefore(const std::string& var, const OpDesc& reader) const;
  // Whether only one op of the whole program reads it.
  bool HasOneReader(const std::string& var) const;
  // The original of a recomputed variable; for other variables, the variable itself.
  const std::string& Original(const std::string& var) const;
  // The variable, its original and all copies of that.
  std::vector<std::string> SameAs(const std::string& var) const;
  // Whether all these ops may run at the position of one of them, `place`: between there and their
  // own positions, no other op writes what they read, or reads or writes what they write.
  bool MayRunAt(const std::vector<const OpDesc*>& ops, const OpDesc& place) const;

 private:
  friend class MatchSearch;
  // Whether sub-blocks that run between the two positions write a variable that the op
  // reads, or use a variable that it writes. The block's index of uses does not contain the
  // ops of sub-blocks.
  bool BlocksUse(const OpDesc& op, size_t begin, size_t end) const;

  BlockDesc& block_;
  const PassContext& context_;
  std::unordered_map<std::string, std::string> originals_;            // by recomputed variable
  std::unordered_map<std::string, std::vector<std::string>> copies_;  // by original
};

// Collects edits of a block and applies them together, so that matches stay valid until then.
class Rewrites {
 public:
  explicit Rewrites(BlockDesc& block) : block_(block) {}

  // Replaces the ops of the match by `with`, at the position of its last op. Each new op gets the
  // origins of all removed ops.
  void Replace(const Match& match, const std::vector<OpDesc>& with);
  // Replaces `ops` by `with`, at the position of `place`, which is one of `ops`.
  void Replace(const std::vector<const OpDesc*>& ops, const OpDesc& place,
               const std::vector<OpDesc>& with);
  bool Apply();  // returns whether there were edits

 private:
  BlockDesc& block_;
  std::unordered_map<const OpDesc*, std::vector<std::unique_ptr<OpDesc>>> replaced_;
};

}  // namespace coracle::inline internal
