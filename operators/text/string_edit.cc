// Ops that make strings of strings: string_concat, string_normalize, string_split.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/string_arena.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/text/letter_case.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace coracle::string_edit_op {

void RequireStrings(const InferContext& ctx, std::string_view id, const char* slot) {
  ctx.Require(id, ctx.InputDType(slot) == DType::kString, slot, ctx.InputDType(slot));
}

// --- string_concat ---

void InferConcat(InferContext& ctx) {
  const Shape out = InferBroadcast(ctx, ctx.InputShape("X"), ctx.InputShape("Y"), -1);
  for (const char* slot : {"X", "Y"}) RequireStrings(ctx, "C4", slot);
  ctx.SetOutput("Out", DType::kString, out);
}

StringRef Joined(StringArena& arena, StringRef a, StringRef b) {
  if (a.size == 0) return b;
  if (b.size == 0) return a;
  char* to = arena.Take(a.size + b.size);
  std::memcpy(to, a.data, a.size);
  std::memcpy(to + a.size, b.data, b.size);
  return {to, a.size + b.size};
}

Kernel Concat(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const BroadcastNest nest = MakeBroadcastNest(x.shape, y.shape, -1);
  return [=](Workspace& ws) {
    StringArena& arena = StringArena::OfRun();
    BroadcastLoop(nest, ws.Data<const StringRef>(x), ws.Data<const StringRef>(y),
                  ws.Data<StringRef>(out),
                  [&](StringRef a, StringRef b) { return Joined(arena, a, b); });
  };
}

// --- string_normalize ---

void InferNormalize(InferContext& ctx) {
  RequireStrings(ctx, "C1", "X");
  const Shape& x = ctx.InputShape("X");
  const bool row = x.rank() == 2 && InferContext::Matches(x[0], 1);
  ctx.Require("C2", x.rank() == 1 || row, x);
  ctx.SetOutput("Out", DType::kString, x.rank() == 1 ? Shape{-1} : Shape{1, -1});
}

struct Normalizer {
  explicit Normalizer(const PrepareContext& ctx)
      : change(ctx.Attr<std::string>("case_change")), cased(ctx.Attr<bool>("is_case_sensitive")) {
    for (const std::string& word : ctx.Attr<std::vector<std::string>>("stopwords"))
      stopwords.insert(cased ? word : ToLower(word));
  }
  bool Keeps(std::string_view word) const {
    if (stopwords.empty()) return true;
    return !stopwords.count(cased ? std::string(word) : ToLower(word));
  }
  StringRef Changed(StringArena& arena, StringRef word) const {
    if (change == "lower") return arena.Add(ToLower(word.view()));
    return change == "upper" ? arena.Add(ToUpper(word.view())) : word;
  }
  std::string change;
  bool cased;
  std::unordered_set<std::string> stopwords;
};

Kernel Normalize(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [x, out, normalizer = Normalizer(ctx)](Workspace& ws) {
    StringArena& arena = StringArena::OfRun();
    std::vector<StringRef> kept;
    for (const StringRef& word : ws.Span<const StringRef>(x)) {
      if (normalizer.Keeps(word.view())) kept.push_back(normalizer.Changed(arena, word));
    }
    if (kept.empty()) kept.emplace_back();
    const auto count = static_cast<int64_t>(kept.size());
    const Shape shape = x.shape.rank() == 1 ? Shape{count} : Shape{1, count};
    StringRef* to = ResizeOutput(ws, out, DType::kString, shape).data<StringRef>();
    std::copy(kept.begin(), kept.end(), to);
  };
}

// --- string_split ---

void InferSplit(InferContext& ctx) {
  RequireStrings(ctx, "C1", "X");
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C2", x.rank() < Shape::kMaxRank, x);
  Shape parts = x;
  parts.Append(-1);
  ctx.SetOutput("Out", DType::kString, parts);
  ctx.SetOutput("Count", DType::kInt64, x);
}

// Calls part(p) for each part of `text`, which shares its bytes. Runs of white space separate
// words, and are no part of them.
template <class Part>
void SplitWords(std::string_view text, size_t most, const Part& part) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  for (size_t splits = 0;; ++splits) {
    const size_t begin = text.find_first_not_of(kSpace);
    if (begin == text.npos) return;
    text.remove_prefix(begin);
    const size_t end = text.find_first_of(kSpace);
    if (end == text.npos || splits == most) return part(text);
    part(text.substr(0, end));
    text.remove_prefix(end);
  }
}

template <class Part>
void SplitAt(std::string_view text, std::string_view delimiter, size_t most, const Part& part) {
  for (size_t splits = 0;; ++splits) {
    const size_t end = splits == most ? text.npos : text.find(delimiter);
    part(text.substr(0, end));
    if (end == text.npos) return;
    text.remove_prefix(end + delimiter.size());
  }
}

Kernel Split(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), count = ctx.Output("Count");
  const std::string delimiter = ctx.Attr<std::string>("delimiter");
  const int64_t limit = ctx.Attr<int64_t>("maxsplit");
  const size_t most = limit < 0 ? SIZE_MAX : static_cast<size_t>(limit);
  const auto for_each_part = [=](const StringRef& text, const auto& part) {
    delimiter.empty() ? SplitWords(text.view(), most, part)
                      : SplitAt(text.view(), delimiter, most, part);
  };
  return [=](Workspace& ws) {
    const auto texts = ws.Span<const StringRef>(x);
    int64_t* counts = count ? ws.Data<int64_t>(count) : nullptr;
    int64_t longest = 0;
    for (const StringRef& text : texts) {
      int64_t parts = 0;
      for_each_part(text, [&](std::string_view) { ++parts; });
      longest = std::max(longest, parts);
      if (counts) *counts++ = parts;
    }
    Shape shape = x.shape;
    shape.Append(longest);
    Tensor& result = ResizeOutput(ws, out, DType::kString, shape);
    StringRef* row = result.empty() ? nullptr : result.data<StringRef>();
    for (const StringRef& text : texts) {
      StringRef* to = row;
      for_each_part(text, [&](std::string_view part) { *to++ = {part.data(), part.size()}; });
      row += longest;
      std::fill(to, row, StringRef{});
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("string_concat")
              .Doc("Out = X followed by Y, element by element. The operand of lower rank aligns "
                   "with the last dims of the other one, and dims of 1 are broadcast.")
              .Constraint("C3", "aligned dims must be equal, or one of them 1")
              .Constraint("C4", "X and Y must be strings")
              .Input("X", "tensor of strings")
              .Input("Y", "tensor of strings")
              .Output("Out", "tensor of the broadcast shape")
              .Strings()
              .Elementwise()
              .Infer(InferConcat)
              .NotDifferentiable("the elements are strings")
              .Reference(Concat));
  ops.Add(OpDef("string_normalize")
              .Doc("Out = the elements of X that are not among the stop words, in another case. "
                   "Without any element left, Out holds one empty string. Letters change by the "
                   "simple case mappings of Unicode, whatever the locale; bytes that are not UTF-8 "
                   "stay as they are.")
              .Constraint("C1", "X must be strings")
              .Constraint("C2", "X must be [n] or [1, n]")
              .Input("X", "strings [n] or [1, n]")
              .Output("Out", "strings [m] or [1, m]")
              .Attr<std::string>("case_change", std::string("none"), "the case of Out")
              .OneOf({"none", "lower", "upper"})
              .Attr<bool>("is_case_sensitive", false,
                          "whether an element must have the case of a stop word to equal it")
              .Attr<std::vector<std::string>>("stopwords", {}, "the elements to leave out")
              .Strings()
              .RunTimeShape()
              .NoLod()
              .Rows(RowRule::kMixes)
              .Infer(InferNormalize)
              .NotDifferentiable("the elements are strings")
              .Reference(Normalize));
  ops.Add(OpDef("string_split")
              .Doc("Out[.., k] = part k of an element of X, cut at each delimiter; shorter lists "
                   "of parts end with empty strings. Without a delimiter, runs of spaces, tabs, "
                   "line ends, vertical tabs and form feeds separate the parts, and those at the "
                   "beginning and the end are left out. Count = the number of parts.")
              .Constraint("C1", "X must be strings")
              .Constraint("C2", "X must have at most 8 dimensions")
              .Input("X", "tensor of strings")
              .Output("Out", "strings, with one more dimension than X")
              .OptionalOutput("Count", "int64 tensor of X's shape")
              .Attr<std::string>("delimiter", std::string(), "what separates parts; empty: spaces")
              .Attr<int64_t>("maxsplit", -1,
                             "cuts at most; the last part is the rest. Negative: no limit")
              .Strings()
              .RunTimeShape()
              .Rows(RowRule::kMixes)
              .Infer(InferSplit)
              .NotDifferentiable("the elements are strings")
              .Reference(Split));
}

}  // namespace coracle::string_edit_op
