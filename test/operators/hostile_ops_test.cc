#include <coracle/operators/operators.h>
#include <coracle/test/hostile.h>
#include <coracle/test/op_test.h>
#include <gtest/gtest.h>

namespace coracle::hostile_ops_test {

// An op with anything in its slots, most of them of one shape and dtype.
void RunRandom(const OpSpec& def, uint32_t seed) {
  std::mt19937 random(seed);
  auto chance = [&](uint32_t percent) { return random() % 100 < percent; };
  const Shape shapes[] = {HostileShape(random), {1}, HostileShape(random)};
  const DType dtype = chance(70) ? DType::kFloat32 : HostileDType(random);
  OpDesc op(def.type);
  VarValues env;
  for (const SlotDef& slot : def.inputs) {
    if (slot.optional && chance(50)) continue;
    std::vector<std::string> args;
    for (uint32_t i = 0, n = slot.variadic ? 1 + random() % 3 : 1; i < n; ++i) {
      const Shape shape = chance(75)   ? shapes[0]
                          : chance(80) ? shapes[1 + random() % 2]
                                       : HostileShape(random);
      args.push_back(slot.name + "." + std::to_string(i));
      env[args.back()] = HostileTensor(random, chance(85) ? dtype : HostileDType(random), shape);
    }
    op.SetInput(slot.name, args);
  }
  for (const SlotDef& slot : def.outputs) {
    if (!slot.optional || chance(70)) op.SetOutput(slot.name, {slot.name + ".out"});
  }
  for (const AttrDef& attr : def.attrs) {
    if (!attr.default_value || chance(25)) op.SetAttr(attr.name, HostileAttr(random, attr));
  }
  RunHostile(op, env, DefaultOps());
}

TEST(HostileOps, RandomSlotsAndAttrs) {
  for (const std::string& type : DefaultOps().Types()) {
    const OpSpec& def = DefaultOps().Get(type);
    if (def.kind != OpKind::kCompute || def.side_effect) continue;
    for (uint32_t seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(type + " with seed " + std::to_string(seed));
      RunRandom(def, seed);
      if (::testing::Test::HasFailure()) break;
    }
  }
}

// Gradient ops that take the gradient of an Out that they do not see.
TEST(HostileOps, OutGradIsOfTheShapeOfOut) {
  using Ints = std::vector<int32_t>;
  const auto grad = [](const std::string& type, const char* x, const Shape& shape) {
    return std::move(OpTest(type).RandomInput(x, shape));
  };
  const Shape wrong = {2, 9};
  grad("clip_grad", "X", {2, 3})
      .Attr("min", -1.f)
      .Attr("max", 1.f)
      .RandomInput("Out@GRAD", wrong)
      .ExpectError("clip_grad.C4");
  grad("concat_grad", "X", {2, 3}).RandomInput("Out@GRAD", wrong).ExpectError("concat_grad.C4");
  grad("concat_grad", "X", {2, 3})
      .RandomInput("Out@GRAD", {2, 3})
      .Outputs("X@GRAD", 2)
      .ExpectError("concat_grad.C5");
  grad("expand_v2_grad", "X", {1, 3})
      .Attr("shape", Ints{2, 3})
      .RandomInput("Out@GRAD", wrong)
      .ExpectError("expand_v2_grad.C5");
  grad("tile_grad", "X", {1, 3})
      .Attr("repeat_times", Ints{2, 1})
      .RandomInput("Out@GRAD", wrong)
      .ExpectError("tile_grad.C5");
  for (const std::string type : {"gather_grad", "gather_nd_grad"}) {
    grad(type, "X", {4, 3})
        .IntInput("Index", {2, 1}, {0, 1})
        .RandomInput("Out@GRAD", wrong)
        .ExpectError(type + ".C5");
  }
  for (const std::string type : {"lookup_table_grad", "lookup_table_v2_grad"}) {
    grad(type, "W", {4, 3})
        .IntInput("Ids", {2, 1}, {0, 1})
        .TensorInput("Out@GRAD", Tensor::Zeros(DType::kFloat64, {2, 3}))
        .ExpectError(type + ".C4");
  }
  grad("mul_grad", "X", {2, 3})
      .RandomInput("Y", {3, 4})
      .RandomInput("Out@GRAD", wrong)
      .ExpectError("mul_grad.C5");
  for (const std::string type : {"slice_grad", "strided_slice_grad"}) {
    OpTest test = grad(type, "Input", {4, 3}).RandomInput("Out@GRAD", wrong);
    test.Attr("axes", Ints{0}).Attr("starts", Ints{0}).Attr("ends", Ints{2});
    if (type == "strided_slice_grad") test.Attr("strides", Ints{1});
    test.ExpectError(type + ".C5");
  }
}
}  // namespace coracle::hostile_ops_test
