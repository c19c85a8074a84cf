#pragma once
// Patterns of ops, written as programs are listed, and where a block has them. Internal to passes/.
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
// A line is an op: its label, what it writes, its type (one of several), what it reads; behind a
// slot stands the pattern's name for the variable in it. What a match promises:
// * One name is one variable. Where no line writes it, a copy that was computed again
//   (recomputed_from) may stand for its original.
// * Slots that the line does not list are absent, or outputs that nobody reads; `...` in a list
//   allows others. `Bias=b?` may be absent: Match::Has.
// * What one op of the pattern writes and another reads is written once and seen by nobody else.
//   The pattern's other outputs are written once too.
// * All ops may run where the last of them stands: nobody writes in between what they read, nor
//   reads or writes what they write.
// Types, attrs, shapes and constants are conditions of the pass that follow as plain code.

#include <coracle/passes/pass.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle {

class Pattern {
 public:
  // Throws InternalError for a text that cannot be read. A line must have a variable in common with
  // those before it.
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

// A place where a block has a pattern: views into the block. By label and name, as the pattern
// calls them; both throw InternalError for one that it does not have.
class Match {
 public:
  OpDesc& op(std::string_view label) const;
  const std::string& operator[](std::string_view name) const;
  bool Has(std::string_view name) const;

 private:
  friend class MatchSearch;
  friend class Rewrites;
  // In the order of the search. Few of each, so that lists take less time than maps.
  std::vector<std::pair<std::string, OpDesc*>> ops_;
  std::vector<std::pair<std::string, std::string>> vars_;
};

// Answers hold until the block's ops change.
class Matcher {
 public:
  Matcher(BlockDesc& block, const PassContext& context);

  // In the order of the ops that match the first line.
  std::vector<Match> FindAll(const Pattern& pattern) const;
  // The first place where the pattern's names that `known` has stand for the same variables.
  std::optional<Match> Find(const Pattern& pattern, const Match& known) const;

  // nullptr for a variable that the program does not declare.
  const Shape* ShapeOf(const std::string& var) const;
  const Tensor* Constant(const std::string& var) const { return context_.FrozenValue(var); }
  bool IsWrittenOnce(const std::string& var) const;
  // Only one op of the whole program reads it.
  bool HasOneReader(const std::string& var) const;
  // What a recomputed variable is a copy of; any other variable itself.
  const std::string& Original(const std::string& var) const;
  // The variable and its copies, or its original and that one's copies.
  std::vector<std::string> SameAs(const std::string& var) const;
  // Whether all these ops may run where one of them, `place`, stands: nobody writes in between what
  // they read, nor reads or writes what they write.
  bool MayRunAt(const std::vector<const OpDesc*>& ops, const OpDesc& place) const;

 private:
  friend class MatchSearch;
  // Whether sub-blocks that run between the two positions write a variable that the op reads, or
  // use one that it writes. This block's index of uses does not contain their ops.
  bool BlocksUse(const OpDesc& op, size_t begin, size_t end) const;

  BlockDesc& block_;
  const PassContext& context_;
  std::unordered_map<std::string, std::string> originals_;            // by recomputed variable
  std::unordered_map<std::string, std::vector<std::string>> copies_;  // by original
};

// Edits of a block that are made together, so that matches hold until then.
class Rewrites {
 public:
  explicit Rewrites(BlockDesc& block) : block_(block) {}

  // Puts `with` in the place of the match's last op and removes all ops of the match. Each new op
  // gets the origins of all removed ops.
  void Replace(const Match& match, const std::vector<OpDesc>& with);
  // Puts `with` in the place of `place`, which is one of `ops`, and removes `ops`.
  void Replace(const std::vector<const OpDesc*>& ops, const OpDesc& place,
               const std::vector<OpDesc>& with);
  void Apply();

 private:
  BlockDesc& block_;
  std::unordered_map<const OpDesc*, std::vector<std::unique_ptr<OpDesc>>> replaced_;
};

}  // namespace coracle
