#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace coracle::tfidf_vectorizer_op {

using Longs = std::vector<int64_t>;
using Strings = std::vector<std::string>;

struct Settings {
  template <class Context>
  explicit Settings(const Context& ctx)
      : mode(ctx.template Attr<std::string>("mode")),
        least(ctx.template Attr<int64_t>("min_gram_length")),
        most(ctx.template Attr<int64_t>("max_gram_length")),
        skips(ctx.template Attr<int64_t>("max_skip_count")),
        starts(ctx.template Attr<Longs>("ngram_counts")),
        places(ctx.template Attr<Longs>("ngram_indexes")),
        integers(ctx.template Attr<Longs>("pool_int64s")),
        strings(ctx.template Attr<Strings>("pool_strings")),
        weights(ctx.template Attr<std::vector<float>>("weights")) {}

  // Tokens in the pool.
  int64_t PoolSize() const {
    return static_cast<int64_t>(strings.empty() ? integers.size() : strings.size());
  }
  // Where the n-grams of length n + 1 begin in the pool, or end for n = starts.size().
  int64_t Start(size_t n) const { return n < starts.size() ? starts[n] : PoolSize(); }
  int64_t Width() const {
    return places.empty() ? 0 : *std::max_element(places.begin(), places.end()) + 1;
  }

  std::string mode;
  int64_t least, most, skips;
  Longs starts, places, integers;
  Strings strings;
  std::vector<float> weights;
};

// Whether the pool has whole n-grams only, one for each place.
bool IsWhole(const Settings& settings) {
  int64_t grams = 0;
  for (size_t n = 0; n < settings.starts.size(); ++n) {
    const int64_t begin = settings.Start(n), end = settings.Start(n + 1);
    const auto length = static_cast<int64_t>(n) + 1;
    if (begin < 0 || end < begin || end > settings.PoolSize() || (end - begin) % length != 0)
      return false;
    grams += (end - begin) / length;
  }
  return settings.Start(0) == 0 && grams == static_cast<int64_t>(settings.places.size());
}

void InferVectorizer(InferContext& ctx) {
  const Settings settings(ctx);
  const DType dtype = ctx.InputDType("X");
  const bool text = dtype == DType::kString;
  ctx.Require("C1", text || dtype == DType::kInt32 || dtype == DType::kInt64, dtype);
  ctx.Require("C2", (text ? settings.integers : Longs(settings.strings.size())).empty(), dtype);
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C3", x.rank() == 1 || x.rank() == 2, x);
  ctx.Require("C4", settings.least >= 1 && settings.most >= settings.least && settings.skips >= 0,
              settings.least, settings.most, settings.skips);
  ctx.Require("C5", IsWhole(settings), settings.starts, settings.PoolSize(),
              settings.places.size());
  const bool places = std::all_of(settings.places.begin(), settings.places.end(),
                                  [](int64_t at) { return at >= 0 && at < Shape::kMaxElements; });
  ctx.Require("C6", places && !settings.places.empty(), settings.places.size());
  const auto weights = static_cast<int64_t>(settings.weights.size());
  ctx.Require("C7", weights == 0 || weights >= settings.Width(), weights, settings.Width());
  const int64_t width = settings.Width();
  ctx.SetOutput("Out", DType::kFloat32, x.rank() == 1 ? Shape{width} : Shape{x[0], width});
}

// The n-grams as a tree: a node for each beginning of one.
class GramTree {
 public:
  static constexpr int32_t kNone = -1;

  explicit GramTree(const Settings& settings) {
    size_t gram = 0;
    for (size_t n = 0; n < settings.starts.size(); ++n) {
      const int64_t length = static_cast<int64_t>(n) + 1;
      for (int64_t at = settings.Start(n); at < settings.Start(n + 1); at += length, ++gram) {
        if (length >= settings.least && length <= settings.most)
          Add(settings, at, length, settings.places[gram]);
      }
    }
  }

  int32_t TokenOf(int64_t value) const { return Find(integers_, value); }
  int32_t TokenOf(std::string_view value) const { return Find(strings_, value); }
  // The node after `node` (0: none yet), or kNone.
  int32_t Next(int32_t node, int32_t token) const { return Find(next_, Key(node, token)); }
  // The column that counts the n-gram which ends in the node, or kNone.
  int64_t PlaceOf(int32_t node) const { return places_[static_cast<size_t>(node)]; }

 private:
  template <class Map, class Value>
  static int32_t Find(const Map& map, const Value& value) {
    const auto found = map.find(typename Map::key_type(value));
    return found == map.end() ? kNone : found->second;
  }
  static uint64_t Key(int32_t node, int32_t token) {
    return static_cast<uint64_t>(node) << 32 | static_cast<uint32_t>(token);
  }
  template <class Map, class Value>
  static int32_t Numbered(Map& map, const Value& value) {
    return map.try_emplace(value, static_cast<int32_t>(map.size())).first->second;
  }

  void Add(const Settings& settings, int64_t at, int64_t length, int64_t place) {
    int32_t node = 0;
    for (int64_t i = at; i < at + length; ++i) {
      const auto k = static_cast<size_t>(i);
      const int32_t token = settings.strings.empty() ? Numbered(integers_, settings.integers[k])
                                                     : Numbered(strings_, settings.strings[k]);
      const auto [found, added] =
          next_.try_emplace(Key(node, token), static_cast<int32_t>(places_.size()));
      if (added) places_.push_back(kNone);
      node = found->second;
    }
    places_[static_cast<size_t>(node)] = place;
  }

  std::unordered_map<int64_t, int32_t> integers_;
  std::unordered_map<std::string, int32_t> strings_;
  std::unordered_map<uint64_t, int32_t> next_;
  Longs places_ = {kNone};  // by node
};

// Counts the n-grams of a row whose tokens are `step` apart and which have at least `least` tokens.
void CountGrams(const GramTree& tree, const std::vector<int32_t>& tokens, int64_t step,
                int64_t least, int64_t most, float* counts) {
  const auto size = static_cast<int64_t>(tokens.size());
  if (size == 0 || least - 1 > (size - 1) / step) return;
  for (int64_t start = 0; start < size - step * (least - 1); ++start) {
    int32_t node = 0;
    int64_t length = 1;
    for (int64_t at = start; at < size && length <= most; at += step, ++length) {
      const int32_t token = tokens[static_cast<size_t>(at)];
      if (token == GramTree::kNone) break;
      node = tree.Next(node, token);
      if (node == GramTree::kNone) break;
      const int64_t place = tree.PlaceOf(node);
      if (length >= least && place != GramTree::kNone) counts[place] += 1;
    }
  }
}

struct Vectorizer {
  explicit Vectorizer(const PrepareContext& ctx) : settings(ctx), tree(settings) {}

  template <class T>
  void Row(const T* x, int64_t n, float* out) const {
    const int64_t width = settings.Width();
    std::fill(out, out + width, 0.0f);
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, StringRef>)
        tokens.push_back(tree.TokenOf(x[i].view()));
      else
        tokens.push_back(tree.TokenOf(static_cast<int64_t>(x[i])));
    }
    int64_t least = settings.least;
    // Steps of n and more reach one token only.
    const int64_t steps = std::min(settings.skips, std::max<int64_t>(n, 1)) + 1;
    for (int64_t step = 1; step <= steps; ++step) {
      CountGrams(tree, tokens, step, least, settings.most, out);
      if (least > 1) continue;
      // Single tokens are the same for every step.
      if (++least > settings.most) break;
    }
    for (int64_t i = 0; i < width; ++i) Weigh(static_cast<size_t>(i), &out[i]);
  }

  void Weigh(size_t i, float* count) const {
    if (settings.mode == "TF") return;
    if (settings.mode == "IDF") *count = std::min(*count, 1.0f);
    if (!settings.weights.empty()) *count *= settings.weights[i];
  }

  Settings settings;
  GramTree tree;
};

template <class T>
Kernel VectorizerOf(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const auto vectorizer = std::make_shared<const Vectorizer>(ctx);
  const int64_t n = x.shape[x.shape.rank() - 1], rows = x.shape.rank() == 1 ? 1 : x.shape[0];
  const int64_t width = vectorizer->settings.Width();
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(x);
    float* to = ws.Data<float>(out);
    ParallelFor(rows, 1 + 4096 / (n + width + 1), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        vectorizer->Row(n > 0 ? from + row * n : nullptr, n, to + row * width);
    });
  };
}

Kernel Prepare(const PrepareContext& ctx) {
  switch (ctx.Input("X").dtype) {
    case DType::kString:
      return VectorizerOf<StringRef>(ctx);
    case DType::kInt32:
      return VectorizerOf<int32_t>(ctx);
    default:
      return VectorizerOf<int64_t>(ctx);
  }
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("tfidf_vectorizer")
          .Doc("Out[ngram_indexes[i]] = how often n-gram i of the pool occurs in a row of X. The "
               "tokens of an occurrence are 1 to max_skip_count + 1 apart, each distance by "
               "itself; single tokens count once. Mode IDF counts 1 at most. Column j is "
               "multiplied by weights[j] in the modes IDF and TFIDF.")
          .Constraint("C1", "X must be strings, int32 or int64")
          .Constraint("C2", "the pool must have the kind of X's elements: strings or integers")
          .Constraint("C3", "X must be [n] or [rows, n]")
          .Constraint("C4",
                      "1 <= min_gram_length <= max_gram_length and max_skip_count >= 0 must hold")
          .Constraint("C5",
                      "the pool must hold whole n-grams: between two of ngram_counts a multiple "
                      "of n tokens, and one of ngram_indexes for each n-gram")
          .Constraint("C6", "ngram_indexes must be given, and not be negative")
          .Constraint("C7", "there must be a weight for each column of Out, or none")
          .Input("X", "tokens [n] or [rows, n]")
          .Output("Out", "float32 [columns] or [rows, columns]")
          .Attr<std::string>("mode", std::string("TF"), "what a column holds")
          .OneOf({"TF", "IDF", "TFIDF"})
          .Attr<int64_t>("min_gram_length", 1, "tokens of the shortest n-grams that count")
          .Attr<int64_t>("max_gram_length", 1, "tokens of the longest n-grams that count")
          .Attr<int64_t>("max_skip_count", 0, "tokens that may be left out between two")
          .Attr<Longs>("ngram_counts", "where the n-grams of 1, 2, ... tokens begin in the pool")
          .Attr<Longs>("ngram_indexes", "the column of each n-gram")
          .Attr<Longs>("pool_int64s", {}, "the n-grams, for integers")
          .Attr<Strings>("pool_strings", {}, "the n-grams, for strings")
          .Attr<std::vector<float>>("weights", {}, "a weight for each column; none: 1")
          .Strings()
          .Rows(RowRule::kEach)
          .Infer(InferVectorizer)
          .NotDifferentiable("the output is a count")
          .Reference(Prepare));
}

}  // namespace coracle::tfidf_vectorizer_op
