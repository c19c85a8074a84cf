// Attention of single ops.

#include <coracle/test/fuzz/program_maker.h>

namespace coracle {

void ProgramMaker::AddAttention() {
  using Ints = std::vector<int32_t>;
  const auto size = [&](uint64_t most) { return 1 + static_cast<int64_t>(choose_.Below(most)); };
  // Some of what is inside may be read, written or fetched elsewhere.
  const auto made = [&](const Variable& var) {
    if (choose_.OneIn(12)) live_.push_back({var.name()});
    return var;
  };
  const int64_t batch = size(2), heads = size(3), rows = size(4), columns = size(4);
  // Operands as they are, transposed, or cut from one that was transposed.
  const uint64_t form = choose_.Below(3);
  const int64_t keys = form == 2 ? rows : size(5);
  Variable parts[3];
  if (form == 2) {
    const Variable whole = net_.Var(PlainInput({batch, rows, 3, heads, columns}));
    const Variable all = made(net_.Transpose(whole, {2, 0, 3, 1, 4}));
    for (int32_t i = 0; i < 3; ++i) {
      parts[i] = made(net_.Make("slice", {{"Input", {all.name()}}},
                                {{"axes", Ints{0}},
                                 {"starts", Ints{i}},
                                 {"ends", Ints{i + 1}},
                                 {"decrease_axis", Ints{0}}}));
    }
  } else {
    for (int i = 0; i < 3; ++i) {
      const int64_t length = i == 0 ? rows : keys;
      if (form == 0)
        parts[i] = net_.Var(PlainInput({batch, heads, length, columns}));
      else
        parts[i] = made(
            net_.Transpose(net_.Var(PlainInput({batch, length, heads, columns})), {0, 2, 1, 3}));
    }
  }
  const bool first = choose_.OneIn(2);
  const auto product = [&](const Variable& x, const Variable& y, bool transposed, float alpha) {
    if (first) return net_.Matmul(x, y, {.transpose_y = transposed, .alpha = alpha});
    return net_.Binary("matmul_v2", x, y, {{"trans_y", transposed}});
  };
  Variable s = made(product(parts[0], parts[1], true, 0.5f));
  if (choose_.OneIn(3)) s = made(net_.Scale(s, {.scale = 0.7f}));
  const Shape masks[] = {{batch, 1, 1, keys}, {rows, keys}, {batch, heads, rows, keys}};
  if (choose_.OneIn(2)) s = made(net_.Add(s, net_.Var(PlainInput(masks[choose_.Below(3)]))));
  s = made(net_.Softmax(s));
  if (choose_.OneIn(3)) {
    DropoutOptions options;
    options.dropout_prob = 0.4f;
    options.is_test = choose_.OneIn(3);
    if (choose_.OneIn(3)) options.seed = 5;
    if (choose_.OneIn(2)) options.dropout_implementation = "upscale_in_train";
    s = made(net_.Dropout(s, options));
  }
  Variable out = product(s, parts[2], false, 1);
  if (form != 0 || choose_.OneIn(3)) out = net_.Transpose(made(out), {0, 2, 1, 3});
  live_.push_back({out.name()});
}

}  // namespace coracle
