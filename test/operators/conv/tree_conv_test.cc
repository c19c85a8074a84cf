#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

namespace coracle::tree_conv_test {

using Ints = std::vector<int64_t>;

OpTest Conv(int32_t max_depth, const Shape& nodes, const std::vector<double>& x, int64_t edges,
            const Ints& pairs, const Shape& filter, const std::vector<double>& f) {
  return std::move(OpTest("tree_conv")
                       .Attr("max_depth", max_depth)
                       .Input("NodesVector", nodes, x)
                       .IntInput("EdgeSet", {nodes[0], edges, 2}, pairs, DType::kInt32)
                       .Input("Filter", filter, f));
}

// Node 1 has the children 2, 3 and 4, node 3 the child 5; one feature, one output; the weights of
// left, right and top are 100, 10 and 1. Node 6 is not in the tree.
TEST(TreeConv, ByHand) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6};
  const Ints edges = {1, 2, 1, 3, 1, 4, 3, 5, 0, 0, 1, 6};
  // Depth 1 of 2: t = 1/2. Node 2: l = 0, r = 1/2; 3: l = 1/4, r = 3/8; 4: l = 1/2, r = 1/4.
  // Node 5 below 3: l = 1/4, r = 3/8.
  const double two = 0.5 + 5, three = 0.5 + 25 + 3.75, four = 0.5 + 50 + 2.5, five = three;
  Conv(2, {1, 6, 1}, x, 6, edges, {1, 3, 1, 1}, {100, 10, 1})
      .Expect("Out", {1, 6, 1, 1}, {1 + 2 * two + 3 * three + 4 * four, 2, 3 + 5 * five, 4, 5, 0});
  // With three depths node 1 sees node 5, with t = 1/3, l = 1/3, r = 4/9.
  const double t = 2. / 3;
  const auto eta = [&](double top, double side) {
    const double l = (1 - top) * side;
    return 100 * l + 10 * (1 - top) * (1 - l) + top;
  };
  Conv(3, {1, 6, 1}, x, 6, edges, {1, 3, 1, 1}, {100, 10, 1})
      .Expect("Out", {1, 6, 1, 1},
              {1 + 2 * eta(t, 0) + 3 * eta(t, 0.5) + 4 * eta(t, 1) + 5 * eta(1. / 3, 0.5), 2,
               3 + 5 * eta(t, 0.5), 4, 5, 0});
}

TEST(TreeConv, Gradient) {
  std::vector<double> x, f;
  for (int i = 0; i < 2 * 4 * 2; ++i) x.push_back(0.1 * (i * 7 % 11) - 0.4);
  for (int i = 0; i < 2 * 3 * 2 * 3; ++i) f.push_back(0.1 * (i * 5 % 13) - 0.5);
  for (int32_t depth : {2, 3}) {
    Conv(depth, {2, 4, 2}, x, 3, {1, 2, 1, 3, 3, 4, 1, 2, 0, 0, 0, 0}, {2, 3, 2, 3}, f)
        .CheckGradient({"NodesVector", "Filter"})
        .CheckFast(1e-5);
  }
}

// Random trees, large enough for several threads, against the sums by their definition.
TEST(TreeConv, RandomTreesWithThreads) {
  constexpr int64_t kBatch = 2, kNodes = 300, kFeatures = 20, kWidth = 32;
  std::mt19937 random(6);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> x(kBatch * kNodes * kFeatures), f(kFeatures * 3 * kWidth);
  for (double& v : x) v = uniform(random);
  for (double& v : f) v = uniform(random);
  // Node u > 0 hangs below an earlier one, in the order of u.
  Ints pairs;
  std::vector<std::vector<Ints>> children(kBatch, std::vector<Ints>(kNodes));
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t u = 1; u < kNodes; ++u) {
      const auto parent = static_cast<int64_t>(random() % static_cast<uint64_t>(u));
      children[static_cast<size_t>(b)][static_cast<size_t>(parent)].push_back(u);
      pairs.insert(pairs.end(), {parent + 1, u + 1});
    }
  }
  for (const int32_t depth : {2, 4}) {
    std::vector<double> out(kBatch * kNodes * kWidth, 0);
    for (int64_t b = 0; b < kBatch; ++b) {
      const auto& below = children[static_cast<size_t>(b)];
      for (int64_t u = 0; u < kNodes; ++u) {
        const auto add = [&](int64_t v, double l, double r, double t) {
          for (int64_t i = 0; i < kFeatures; ++i) {
            const double value = x[static_cast<size_t>((b * kNodes + v) * kFeatures + i)];
            for (int64_t j = 0; j < kWidth; ++j) {
              const double* w = &f[static_cast<size_t>(i * 3 * kWidth + j)];
              out[static_cast<size_t>((b * kNodes + u) * kWidth + j)] +=
                  value * (l * w[0] + r * w[kWidth] + t * w[2 * kWidth]);
            }
          }
        };
        add(u, 0, 0, 1);
        Ints level{u};
        for (int32_t d = 1; d < depth; ++d) {
          const double t = static_cast<double>(depth - d) / depth;
          Ints next;
          for (int64_t parent : level) {
            const Ints& siblings = below[static_cast<size_t>(parent)];
            for (size_t k = 0; k < siblings.size(); ++k) {
              const double place =
                  siblings.size() == 1
                      ? 0.5
                      : static_cast<double>(k) / static_cast<double>(siblings.size() - 1);
              const double l = (1 - t) * place;
              add(siblings[k], l, (1 - t) * (1 - l), t);
              next.push_back(siblings[k]);
            }
          }
          level = next;
        }
      }
    }
    const Threads threads(3);
    Conv(depth, {kBatch, kNodes, kFeatures}, x, kNodes - 1, pairs, {kFeatures, 3, 4, 8}, f)
        .Expect("Out", {kBatch, kNodes, 4, 8}, out, 1e-4)
        .CheckFast(1e-4);
  }
}

// A chain with node 3 at the top, read from below.
TEST(TreeConv, ParentsAfterTheirChildren) {
  const double eta = 100 * 0.25 + 10 * 0.375 + 0.5;
  Conv(2, {1, 3, 1}, {1, 2, 3}, 2, {2, 1, 3, 2}, {1, 3, 1, 1}, {100, 10, 1})
      .Expect("Out", {1, 3, 1, 1}, {1, 2 + eta, 3 + 2 * eta});
}

TEST(TreeConv, WithoutEdgesOrNodes) {
  Conv(2, {1, 2, 1}, {3, 4}, 0, {}, {1, 3, 1, 1}, {100, 10, 1}).Expect("Out", {1, 2, 1, 1}, {3, 0});
  Conv(2, {1, 0, 1}, {}, 0, {}, {1, 3, 1, 1}, {100, 10, 1}).Expect("Out", {1, 0, 1, 1}, {});
}

TEST(TreeConv, Constraints) {
  OpTest("tree_conv")
      .RandomInput("NodesVector", {2, 1})
      .IntInput("EdgeSet", {1, 1, 2}, {0, 0})
      .RandomInput("Filter", {1, 3, 1, 1})
      .ExpectError("tree_conv.C1");
  OpTest("tree_conv")
      .RandomInput("NodesVector", {1, 1, 1})
      .IntInput("EdgeSet", {1, 1, 1}, {0})
      .RandomInput("Filter", {1, 3, 1, 1})
      .ExpectError("tree_conv.C2");
  const auto with = [](const Ints& pairs, const Shape& filter, int32_t max_depth = 9) {
    return std::move(OpTest("tree_conv")
                         .Attr("max_depth", max_depth)
                         .RandomInput("NodesVector", {1, 3, 1})
                         .IntInput("EdgeSet", {1, 3, 2}, pairs)
                         .RandomInput("Filter", filter));
  };
  with({1, 2, 0, 0, 0, 0}, {1, 2, 1, 1}).ExpectError("tree_conv.C3");
  // Nodes that do not exist, two parents, and cycles, of one node too, whatever is above or below.
  for (const Ints& pairs : {Ints{1, 4, 0, 0, 0, 0}, Ints{-1, 2, 0, 0, 0, 0}, Ints{1, 3, 2, 3, 0, 0},
                            Ints{1, 2, 2, 1, 0, 0}, Ints{1, 1, 0, 0, 0, 0}, Ints{3, 3, 3, 1, 1, 2},
                            Ints{1, 2, 2, 3, 3, 1}, Ints{2, 1, 2, 3, 3, 2}}) {
    for (const int32_t max_depth : {2, 9})
      with(pairs, {1, 3, 1, 1}, max_depth).ExpectError("tree_conv.C4");
  }
  OpTest("tree_conv_grad")
      .RandomInput("NodesVector", {1, 2, 1})
      .IntInput("EdgeSet", {1, 2, 2}, {1, 2, 2, 1})
      .RandomInput("Filter", {1, 3, 1, 1})
      .RandomInput("Out@GRAD", {1, 2, 1, 1})
      .ExpectError("tree_conv_grad.C4");
  OpTest("tree_conv_grad")
      .RandomInput("NodesVector", {1, 1, 1})
      .IntInput("EdgeSet", {1, 1, 2}, {0, 0})
      .RandomInput("Filter", {1, 3, 1, 1})
      .RandomInput("Out@GRAD", {1, 1, 1})
      .ExpectError("tree_conv_grad.C5");
}
}  // namespace coracle::tree_conv_test
