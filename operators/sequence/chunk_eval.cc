// chunk_eval: counts the correct chunks (named entities, phrases) of a tagging.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/sequence/sequence_batch.h>

#include <algorithm>
#include <utility>

namespace coracle::chunk_eval_op {

// The tags of a scheme; -1 if the scheme lacks the tag.
struct Scheme {
  const char* name;
  int64_t count;
  int64_t begin, inside, end, single;
};
constexpr Scheme kSchemes[] = {{"IOB", 2, 0, 1, -1, -1},
                               {"IOE", 2, -1, 0, 1, -1},
                               {"IOBES", 4, 0, 1, 2, 3},
                               {"plain", 1, -1, -1, -1, -1}};

struct Chunk {
  int64_t begin, end, type;
  bool operator==(const Chunk&) const = default;
};

// Reads the chunks of one sequence, one after the other.
class ChunkReader {
 public:
  ChunkReader(const Scheme& scheme, int64_t types, const IndexReader& labels, int64_t begin,
              int64_t length)
      : scheme_(scheme),
        other_(types),
        labels_(labels),
        begin_(begin),
        length_(length),
        last_type_(types) {}

  bool Next(Chunk* chunk) {
    while (at_ < length_) {
      const int64_t label = labels_[begin_ + at_];
      const int64_t tag = label % scheme_.count, type = label / scheme_.count;
      const bool closed = open_ && Ends(tag, type);
      if (closed) *chunk = {start_, at_ - 1, last_type_};
      open_ = open_ && !closed;
      if (Begins(tag, type)) {
        start_ = at_;
        open_ = true;
      }
      last_tag_ = tag;
      last_type_ = type;
      ++at_;
      if (closed) return true;
    }
    if (open_) *chunk = {start_, length_ - 1, last_type_};
    return std::exchange(open_, false);
  }

 private:
  static bool Is(int64_t tag, int64_t wanted) { return wanted >= 0 && tag == wanted; }
  bool OpensAfresh(int64_t tag) const { return Is(tag, scheme_.begin) || Is(tag, scheme_.single); }
  bool LastCloses() const { return Is(last_tag_, scheme_.end) || Is(last_tag_, scheme_.single); }
  // Whether the previous step's chunk ends before a step with this tag and type.
  bool Ends(int64_t tag, int64_t type) const {
    if (last_type_ == other_) return false;
    if (type != last_type_ || LastCloses()) return true;
    const bool in_chunk = Is(last_tag_, scheme_.begin) || Is(last_tag_, scheme_.inside);
    return in_chunk && OpensAfresh(tag);
  }
  bool Begins(int64_t tag, int64_t type) const {
    if (type == other_) return false;
    if (type != last_type_ || OpensAfresh(tag)) return true;
    return LastCloses() && (Is(tag, scheme_.inside) || Is(tag, scheme_.end));
  }

  const Scheme& scheme_;
  int64_t other_;
  const IndexReader& labels_;
  int64_t begin_, length_;
  int64_t at_ = 0, start_ = 0;
  int64_t last_tag_ = -1, last_type_;
  bool open_ = false;
};

void InferEval(InferContext& ctx) {
  const VarMeta &found = ctx.Input("Inference"), &label = ctx.Input("Label");
  const int own = ctx.HasInput("SeqLength") ? 2 : 1;
  for (const VarMeta* side : {&found, &label}) {
    const Shape& shape = side->shape;
    ctx.Require("C1",
                IsIndexType(side->dtype) &&
                    (shape.rank() == own ||
                     (shape.rank() == own + 1 && InferContext::Matches(shape[own], 1))),
                "Inference", found, "Label", label);
  }
  CountSequences(ctx, "C2", "Label", "SeqLength");
  CountSequences(ctx, "C2", "Inference", "SeqLength");
  for (int i = 0; i < own; ++i)
    ctx.Require("C3", InferContext::Matches(found.shape[i], label.shape[i]), "Inference", found,
                "Label", label);
  const int64_t types = ctx.Attr<int32_t>("num_chunk_types");
  ctx.Require("C4", types >= 0, "num_chunk_types", types);
  for (const char* ratio : {"Precision", "Recall", "F1-Score"})
    ctx.SetOutput(ratio, DType::kFloat32, {1});
  for (const char* count : {"NumInferChunks", "NumLabelChunks", "NumCorrectChunks"})
    ctx.SetOutput(count, DType::kInt64, {1});
}

struct Counts {
  int64_t found = 0, wanted = 0, right = 0;
};

// Counts the chunks of one sequence in both taggings.
template <class Counted>
void CountChunks(ChunkReader found, ChunkReader wanted, const Counted& counted, Counts* counts) {
  Chunk a{}, b{};
  bool has_a = found.Next(&a), has_b = wanted.Next(&b);
  while (has_a || has_b) {
    const bool take_a = has_a && (!has_b || a.end <= b.end);
    const bool take_b = has_b && (!has_a || b.end <= a.end);
    if (take_a && counted(a.type)) ++counts->found;
    if (take_b && counted(b.type)) ++counts->wanted;
    if (take_a && take_b && a == b && counted(a.type)) ++counts->right;
    if (take_a) has_a = found.Next(&a);
    if (take_b) has_b = wanted.Next(&b);
  }
}

float Ratio(double a, double b) { return b == 0 ? 0.f : static_cast<float>(a / b); }

const Scheme& SchemeOf(const PrepareContext& ctx) {
  const auto name = ctx.Attr<std::string>("chunk_scheme");
  for (const Scheme& scheme : kSchemes) {
    if (name == scheme.name) return scheme;
  }
  ctx.Unsupported("chunk_scheme " + name);
}

Kernel Eval(const PrepareContext& ctx) {
  const TensorArg inference = ctx.Input("Inference"), label = ctx.Input("Label");
  const SequenceBatch batch(ctx, "Label", "SeqLength", "C2");
  const SequenceBatch own(ctx, "Inference", "SeqLength", "C2");
  const RunConstraint same(ctx, "C3"), known(ctx, "C5");
  const Scheme& scheme = SchemeOf(ctx);
  const int64_t types = ctx.Attr<int32_t>("num_chunk_types"), most = types * scheme.count;
  const auto excluded = ctx.Attr<std::vector<int32_t>>("excluded_chunk_types");
  const TensorArg precision = ctx.Output("Precision"), recall = ctx.Output("Recall");
  const TensorArg f1 = ctx.Output("F1-Score"), num_found = ctx.Output("NumInferChunks");
  const TensorArg num_wanted = ctx.Output("NumLabelChunks");
  const TensorArg num_right = ctx.Output("NumCorrectChunks");
  return [=, &scheme](Workspace& ws) {
    const BatchRows s = batch(ws), t = own(ws);
    const IndexReader found(ws, inference), wanted(ws, label);
    const auto counted = [&](int64_t type) {
      return std::find(excluded.begin(), excluded.end(), type) == excluded.end();
    };
    Counts counts;
    same.Require(s.count() == t.count(), "Inference", t.count(), "Label", s.count());
    for (int64_t i = 0; i < s.count(); ++i) {
      const int64_t begin = s.begin(i), length = s.length(i);
      same.Require(t.length(i) == length, "Inference", t.length(i), "Label", length);
      for (int64_t k = begin; k < begin + length; ++k) {
        known.Require(found[k] >= 0 && found[k] <= most, "Inference", found[k], "most", most);
        known.Require(wanted[k] >= 0 && wanted[k] <= most, "Label", wanted[k], "most", most);
      }
      CountChunks(ChunkReader(scheme, types, found, begin, length),
                  ChunkReader(scheme, types, wanted, begin, length), counted, &counts);
    }
    const auto a = static_cast<double>(counts.found), b = static_cast<double>(counts.wanted);
    const auto right = static_cast<double>(counts.right);
    const auto set = [&](const TensorArg& out, auto value) {
      if (out) ws.Data<decltype(value)>(out)[0] = value;
    };
    set(precision, Ratio(right, a));
    set(recall, Ratio(right, b));
    // 2 P R / (P + R), in which both denominators cancel.
    set(f1, counts.right == 0 ? 0.f : Ratio(2 * right, a + b));
    set(num_found, counts.found);
    set(num_wanted, counts.wanted);
    set(num_right, counts.right);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("chunk_eval")
              .Doc("Counts the chunks of two taggings, and the chunks with the same begin, end and "
                   "type in both. A label is type * tags + tag, with the tags of the scheme: IOB: "
                   "begin, inside; IOE: inside, end; IOBES: begin, inside, end, single; plain: one "
                   "tag. num_chunk_types * tags is the label of steps outside of chunks. Precision "
                   "and Recall divide the chunks in common by those of Inference and of Label; "
                   "F1-Score is their harmonic mean. Ratios are 0 where the divisor is 0.")
              .Constraint("C1",
                          "Inference and Label must be int32 or int64, [steps, 1] with LoD or "
                          "[batch, time] with SeqLength")
              .Constraint("C2", kBatchText)
              .Constraint("C3", "Inference and Label must have the same sequences")
              .Constraint("C4", "num_chunk_types must not be negative")
              .Constraint("C5", "labels must lie in [0, num_chunk_types * tags]")
              .Input("Inference", "int32 or int64 tensor: the predicted labels")
              .Input("Label", "int32 or int64 tensor: the true labels")
              .OptionalInput("SeqLength", "int32 or int64 tensor [batch]: steps of each sequence")
              .Output("Precision", "float32 tensor [1]")
              .Output("Recall", "float32 tensor [1]")
              .OptionalOutput("F1-Score", "float32 tensor [1]")
              .OptionalOutput("NumInferChunks", "int64 tensor [1]")
              .OptionalOutput("NumLabelChunks", "int64 tensor [1]")
              .OptionalOutput("NumCorrectChunks", "int64 tensor [1]")
              .Attr<int32_t>("num_chunk_types", "number of types")
              .Attr<std::string>("chunk_scheme", "IOB", "how labels mark chunks")
              .OneOf({"IOB", "IOE", "IOBES", "plain"})
              .Attr<std::vector<int32_t>>("excluded_chunk_types", {}, "types to leave out")
              .NoLod()
              .NotDifferentiable("a count has no slope")
              .Rows(RowRule::kMixes)
              .Infer(InferEval)
              .Reference(Eval));
}

}  // namespace coracle::chunk_eval_op
