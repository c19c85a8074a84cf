#include <coracle/layers/builder.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::filter_by_instag_test {

using Ints = std::vector<int64_t>;

OpTest Filter(const Shape& ins, LoD lod, const Ints& tags, LoD tag_lod, const Ints& wanted,
              bool is_lod) {
  std::vector<double> values;
  for (int64_t i = 0; i < ins.numel(); ++i) values.push_back(static_cast<double>(i + 1));
  return std::move(OpTest("filter_by_instag")
                       .Attr("is_lod", is_lod)
                       .Input("Ins", ins, values)
                       .Lod(std::move(lod))
                       .IntInput("Ins_tag", {static_cast<int64_t>(tags.size()), 1}, tags)
                       .Lod(std::move(tag_lod))
                       .IntInput("Filter_tag", {static_cast<int64_t>(wanted.size())}, wanted));
}

TEST(FilterByInstag, Rows) {
  Filter({4, 2}, {}, {1, 2, 3, 1, 2}, {{0, 2, 3, 3, 5}}, {9, 2}, false)
      .Expect("Out", {2, 2}, {1, 2, 7, 8})
      .ExpectLod("Out", {{0, 1, 2}})
      .Expect("LossWeight", {2, 1}, {1, 1})
      .ExpectLod("LossWeight", {{0, 1, 2}})
      .Expect("IndexMap", {2, 3}, {0, 0, 1, 1, 3, 1})
      .ExpectLod("IndexMap", {{0, 1, 2}})
      .ExpectDType("IndexMap", DType::kInt64);
}

TEST(FilterByInstag, Sequences) {
  Filter({4, 1}, {{0, 1, 1, 4}}, {5, 6, 5}, {{0, 1, 2, 3}}, {5}, true)
      .Expect("Out", {4, 1}, {1, 2, 3, 4})
      .ExpectLod("Out", {{0, 1, 4}})
      .Expect("IndexMap", {2, 3}, {0, 0, 1, 1, 1, 3});
  Filter({4, 1}, {{0, 1, 1, 4}}, {5, 6, 6}, {{0, 1, 2, 3}}, {6}, true)
      .Expect("Out", {3, 1}, {2, 3, 4})
      .ExpectLod("Out", {{0, 0, 3}});
}

TEST(FilterByInstag, NothingStays) {
  Filter({2, 3}, {}, {1, 1}, {{0, 1, 2}}, {}, false)
      .Attr("out_val_if_empty", int64_t{7})
      .Expect("Out", {1, 3}, {7, 7, 7})
      .ExpectLod("Out", {{0, 1}})
      .Expect("LossWeight", {1, 1}, {0})
      .Expect("IndexMap", {1, 3}, {0, 1, 1});
  OpTest("filter_by_instag_grad")
      .Attr("is_lod", false)
      .IntInput("IndexMap", {1, 3}, {0, 1, 1})
      .Input("Ins", {1, 2}, {1, 2})
      .TensorInput("LossWeight", Tensor::Of<float>({1, 1}, {0}))
      .Input("Out@GRAD", {1, 2}, {3, 4})
      .Expect("Ins@GRAD", {1, 2}, {0, 0});
}

TEST(FilterByInstag, Gradient) {
  for (const DType weights : {DType::kFloat32, DType::kFloat64}) {
    OpTest("filter_by_instag_grad")
        .Attr("is_lod", true)
        .IntInput("IndexMap", {2, 3}, {0, 0, 1, 1, 2, 2})
        .Input("Ins", {4, 1}, {0, 0, 0, 0})
        .Lod({{0, 1, 2, 4}})
        .TensorInput("LossWeight", Tensor::Of<float>({2, 1}, {1, 1}).Cast(weights))
        .Input("Out@GRAD", {3, 1}, {5, 6, 7})
        .Expect("Ins@GRAD", {4, 1}, {5, 0, 6, 7});
  }
}

// Losses of the instances that stay, weighted by LossWeight, to which a gradient flows in vain.
TEST(FilterByInstag, GradientOfAProgram) {
  for (bool is_lod : {false, true}) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    net.Data("x", {-1, 2}, DType::kFloat64, {.stop_gradient = false});
    net.Data("tags", {-1, 1}, DType::kInt64);
    net.Data("wanted", {2}, DType::kInt64);
    for (const char* name : {"y", "weight", "map"}) main.Root().Var(name);
    net.Append(
        "filter_by_instag", {{"Ins", {"x"}}, {"Ins_tag", {"tags"}}, {"Filter_tag", {"wanted"}}},
        {{"Out", {"y"}}, {"LossWeight", {"weight"}}, {"IndexMap", {"map"}}}, {{"is_lod", is_lod}});
    Variable y = net.Var("y"), weight = net.Cast(net.Var("weight"), DType::kFloat64);
    Variable loss = net.Reshape(
        net.Mul(net.ReduceSum(net.Mul(y, y), {}), net.ReduceSum(net.Mul(weight, weight), {})), {1});
    Tensor x = Tensor::Of<double>({4, 2}, {1, -2, 3, 0.5, -1.5, 2, 4, 1});
    if (is_lod) x.lod() = {{0, 1, 1, 4}};
    Tensor tags = Tensor::Of<int64_t>({5, 1}, {1, 2, 3, 1, 2});
    tags.lod() = is_lod ? LoD{{0, 2, 3, 5}} : LoD{{0, 2, 3, 3, 5}};
    CheckProgramGradient({"filter_by_instag"}, main, loss.name(), {"x"},
                         {{"x", x}, {"tags", tags}, {"wanted", Tensor::Of<int64_t>({2}, {2, 9})}});
  }
}

TEST(FilterByInstag, Constraints) {
  Filter({}, {}, {1}, {{0, 1}}, {1}, false).ExpectError("filter_by_instag.C1");
  OpTest("filter_by_instag")
      .Attr("is_lod", false)
      .Input("Ins", {1}, {1})
      .RandomInput("Ins_tag", {1})
      .Lod({{0, 1}})
      .IntInput("Filter_tag", {1}, {1})
      .ExpectError("filter_by_instag.C2");
  Filter({1}, {}, {1}, {{0, 1}}, {1}, true).ExpectError("filter_by_instag.C3");
  Filter({1}, {}, {1}, {}, {1}, false).ExpectError("filter_by_instag.C4");
  Filter({2}, {}, {1}, {{0, 1}}, {1}, false).ExpectError("filter_by_instag.C5");
  Filter({2}, {{0, 2}}, {1, 1}, {{0, 1, 2}}, {1}, true).ExpectError("filter_by_instag.C5");
  const auto grad = [](const Ints& map, const Shape& dout) {
    return std::move(OpTest("filter_by_instag_grad")
                         .Attr("is_lod", false)
                         .IntInput("IndexMap", {1, 3}, map)
                         .RandomInput("Ins", {2, 1})
                         .TensorInput("LossWeight", Tensor::Of<float>({1, 1}, {1}))
                         .RandomInput("Out@GRAD", dout));
  };
  grad({0, 0, 1}, {1, 2}).ExpectError("filter_by_instag_grad.C6");
  for (const Ints& map :
       {Ints{1, 0, 1}, Ints{0, 2, 1}, Ints{-1, 0, 1}, Ints{0, 0, 2}, Ints{0, 0, -1}})
    grad(map, {1, 1}).ExpectError("filter_by_instag_grad.C6");
}
}  // namespace coracle::filter_by_instag_test
