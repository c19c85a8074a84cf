// Calls that append to programs: layers, formulas, control flow.

#include <coracle/test/fuzz/api_state.h>

namespace coracle::api {
namespace {

// A layer on random variables, with random options.
void AnyLayer(Sequence& s, Builder& net) {
  Choices& c = s.choose;
  const auto v = [&] { return s.AnyVariable(); };
  const auto size = [&] { return static_cast<int32_t>(c.Below(8)) - 1; };
  const auto sizes = [&] {
    std::vector<int32_t> all(c.Below(4));
    for (int32_t& one : all) one = size();
    return all;
  };
  OutputOptions output;
  if (c.OneIn(6)) output.act = c.Of({"relu", "tanh", "no_such_act", "softmax"});
  if (c.OneIn(8)) output.output = s.AnyName();
  if (c.OneIn(8)) output.error_clip = s.AnyErrorClip();
  switch (c.Below(31)) {
    case 0:
      return void(net.Fc(v(), {.size = size(), .num_flatten_dims = size()}));
    case 1:
      return void(net.Fc(s.AnyVariables(3), {.size = size(), .act = "relu"}));
    case 2:
      return void(net.Conv2d(v(), {.num_filters = size(), .filter_size = size()}));
    case 3:
      return void(net.BatchNorm(v()));
    case 4:
      return void(net.LayerNorm(v(), {.act = output.act}));
    case 5:
      return void(net.Embedding(v(), {.num_embeddings = size(), .embedding_dim = size()}));
    case 6:
      return void(net.Attention(v(), {.size = size(), .num_heads = size()}));
    case 7:
      return void(
          net.Lstm(v(), {.hidden_size = size(), .direction = c.Of({"forward", "bidirect", "x"})}));
    case 8:
      return void(net.Gru(v(), {.hidden_size = size(), .initial_states = s.AnyVariables(2)}));
    case 9:
      return void(net.Pool2d(v(), {.pool_size = size(), .pool_stride = size()}));
    case 10:
      return void(net.Dropout(v()));
    case 11:
      return void(net.Unary(s.AnyOpType(), v(), {}, output));
    case 12:
      return void(net.Binary(s.AnyOpType(), v(), v(), {}, output));
    case 13:
      return void(net.CrossEntropy(v(), v()));
    case 14:
      return void(net.SoftmaxWithCrossEntropy(v(), v()));
    case 15:
      return void(net.SquareErrorCost(v(), v(), output));
    case 16:
      return void(net.Mean(v(), output));
    case 17:
      return void(net.Accuracy(v(), v()));
    case 18:
      return void(net.Add(v(), v()));
    case 19:
      return void(net.Matmul(v(), v()));
    case 20:
      return void(net.Scale(v(), {.scale = static_cast<float>(s.AnyNumber())}));
    case 21:
      return void(net.Sum(s.AnyVariables(4), output));
    case 22:
      return void(net.ReduceSum(v()));
    case 23:
      return void(net.Cast(v(), s.AnyDType(), output));
    case 24:
      return void(net.Reshape(v(), sizes()));
    case 25:
      return void(net.Transpose(v(), sizes()));
    case 26:
      return void(net.Concat(s.AnyVariables(3)));
    case 27:
      return void(net.Split(v(), {.num = size()}));
    case 28:
      return void(net.Data(s.AnyName(), s.AnyShape(), s.AnyDType()));
    case 29:
      return void(net.Parameter(s.AnyName(), s.AnyShape(), s.AnyDType()));
    default:
      return void(net.Append(s.AnyOpType(), {{"X", s.AnyNames(2)}}, {{"Out", s.AnyNames(2)}},
                             {{"axis", s.AnyAttribute()}}));
  }
}

Variable AnyFormula(Sequence& s) {
  const Variable x = s.AnyVariable(), y = s.AnyVariable();
  const double n = s.AnyNumber();
  switch (s.choose.Below(14)) {
    case 0:
      return x + y * n;
    case 1:
      return (x - y) / 3.0;
    case 2:
      return n / x;
    case 3:
      return Mean(Square(x - y));
    case 4:
      return Sum(Abs(x)) + 0.1 * Mean(Abs(y));
    case 5:
      return Pow(x, n);
    case 6:
      return Where(Greater(x, n), x, y);
    case 7:
      return Max(x, Min(y, n));
    case 8:
      return AddAll(s.AnyVariables(3));
    case 9:
      return Concat(s.AnyVariables(3), static_cast<int32_t>(s.choose.Below(4)) - 2);
    case 10:
      return FillLike(x, n) + Cast(y, s.AnyDType());
    case 11:
      return -Exp(Log(x));
    case 12:
      return Scale(x, y);
    default:
      return Sum(x, {0, static_cast<int32_t>(s.choose.Below(5)) - 2}, s.choose.OneIn(2));
  }
}

void SomeLayers(Sequence& s, Builder& net) {
  for (size_t i = s.choose.Below(3); i > 0; --i) AnyLayer(s, net);
}

void AnyRnn(Sequence& s, Builder& net) {
  StaticRnn rnn(net, {.reverse = s.choose.OneIn(2), .lengths = s.AnyVariable()});
  const bool updates = !s.choose.OneIn(5);
  rnn.Step([&] {
    const Variable x = rnn.StepInput(s.AnyVariable());
    const Variable before = rnn.Memory(s.AnyVariable());
    SomeLayers(s, net);
    const Variable next = s.choose.OneIn(3) ? s.AnyVariable() : before + x;
    if (updates) rnn.UpdateMemory(before, next);
    rnn.StepOutput(next);
  });
  for (const Variable& output : rnn.Outputs()) static_cast<void>(output.name());
}

}  // namespace

void CallBuilder(Sequence& s) {
  s.TryEdit("layer", [&] {
    Builder net(s.main(), s.startup());
    AnyLayer(s, net);
  });
  s.NoteNames();
}

void CallFormula(Sequence& s) {
  s.Try("formula", [&] { AnyFormula(s); });
  s.NoteNames();
}

void CallControlFlow(Sequence& s) {
  const size_t kind = s.choose.Below(8);
  Variable array;
  if (kind == 5 || kind == 6) {
    s.TryEdit("array", [&] {
      Builder net(s.main(), s.startup());
      array = CreateArray(net, s.AnyDType());
    });
  }
  s.TryEdit("control flow " + std::to_string(kind), [&] {
    Builder net(s.main(), s.startup());
    const Variable condition = s.choose.OneIn(4) ? s.AnyVariable() : net.Var("yes");
    const auto body = [&] {
      SomeLayers(s, net);
      if (s.choose.OneIn(4)) ThrowInvalid("a body that throws");
      if (s.choose.OneIn(2)) net.Append("logical_not", {{"X", {"yes"}}}, {{"Out", {"yes"}}});
    };
    const auto branch = [&] {
      SomeLayers(s, net);
      return s.AnyVariables(2);
    };
    if (kind == 0) While(net, condition, body);
    if (kind == 1) If(net, condition, body);
    if (kind == 2) Cond(net, condition, branch, branch, s.AnyNames(1));
    if (kind == 3) Switch(net).Case(condition, body);
    if (kind == 4) AnyRnn(s, net);
    if (kind == 5) ArrayWrite(net, s.AnyVariable(), s.AnyVariable(), array);
    if (kind == 6) ArrayRead(net, s.choose.OneIn(2) ? array : s.AnyVariable(), s.AnyVariable());
    if (kind == 7) While(net, condition, nullptr);
  });
  s.NoteNames();
}

}  // namespace coracle::api
