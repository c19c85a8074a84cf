#pragma once
// Attentions of single ops for tests of the pass fuse_attention, and what these tests have
// in common.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/pass.h>
#include <coracle/test/passes/listing.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

using Names = std::vector<std::string>;

struct Form {
  const char* product = "matmul";  // or matmul_v2
  bool scale_after = false;        // by an op, else by alpha (of matmul)
  Shape mask = {};
  float dropout = 0;
  bool is_test = false;
  std::string way = "upscale_in_train";
  std::optional<int32_t> seed = {};
};

// q, k and v are data, each times a parameter; out is the attention.
class AttentionNet {
 public:
  explicit AttentionNet(DType dtype = DType::kFloat64, bool fixed = true)
      : dtype_(dtype), fixed_(fixed) {}

  ProgramDesc main, startup;
  Builder b{main, startup};
  Names feeds;
  std::map<std::string, Tensor> given;  // what is fed instead of random numbers

  Variable Data(const std::string& name, Shape shape) {
    sizes_[name] = shape;
    if (!fixed_) shape[0] = shape[shape.rank() - 2] = -1;
    feeds.push_back(name);
    return b.Data(name, shape, dtype_);
  }
  Variable Trained(const std::string& name, const Shape& shape) {
    const Variable w =
        b.Parameter("w" + name, {shape[shape.rank() - 1]}, dtype_, {.name = "w" + name});
    return b.Mul(Data(name, shape), w);
  }
  Variable Product(const Form& f, const Variable& x, const Variable& y, bool transposed,
                   float alpha, const std::string& out) {
    const bool first = std::string(f.product) == "matmul";
    AttrList attrs = {{first ? "transpose_Y" : "trans_y", transposed}};
    if (first) attrs.push_back({"alpha", alpha});
    return b.Binary(f.product, x, y, attrs, {.output = out});
  }
  Variable Attend(const Form& f, const Variable& q, const Variable& k, const Variable& v,
                  const std::string& out) {
    const bool alpha = std::string(f.product) == "matmul" && !f.scale_after;
    Variable s = Product(f, q, k, true, alpha ? 0.5f : 1.0f, out + "_scores");
    if (f.scale_after) s = b.Scale(s, {.scale = 0.5f, .output = out + "_scaled"});
    if (f.mask.rank() > 0) s = b.Add(s, Data(out + "_mask", f.mask), {.output = out + "_masked"});
    s = b.Softmax(s, -1, {.output = out + "_weights"});
    if (f.dropout > 0) {
      s = b.Dropout(s, {.dropout_prob = f.dropout,
                        .is_test = f.is_test,
                        .seed = f.seed,
                        .dropout_implementation = f.way,
                        .output = out + "_dropped"});
    }
    return Product(f, s, v, false, 1, out);
  }
  Variable Usual(const Form& f = {}) {
    const Variable q = Trained("q", {2, 3, 4, 5}), k = Trained("k", {2, 3, 6, 5});
    return Attend(f, q, k, Trained("v", {2, 3, 6, 4}), "out");
  }
  // A loss of the variable, and its gradients.
  Names Train(const Variable& out, const BackwardOptions& options = {}) {
    const Variable loss = b.Mean(Square(out), {.output = "loss"});
    Names fetches = {"loss"};
    for (const ParamAndGrad& p : AppendBackward(loss, options)) {
      if (!p.grad.empty()) fetches.push_back(p.grad);
    }
    return fetches;
  }

  std::vector<Tensor> Run(const CompileOptions& options, const Names& fetches) {
    Scope scope;
    Executor(options).Run(startup, scope);
    std::map<std::string, Tensor> values;
    for (const std::string& name : feeds) {
      if (given.count(name) > 0) {
        values.emplace(name, given.at(name).Cast(dtype_));
        continue;
      }
      Tensor x(DType::kFloat64, sizes_[name]);
      Philox random(3, HashName(name), 0);
      for (int64_t i = 0; i < x.numel(); ++i)
        x.data<double>()[i] = random.Normal(static_cast<uint64_t>(i));
      values.emplace(name, x.Cast(dtype_));
    }
    return Executor(options).Run(main, scope, values, fetches);
  }

 private:
  DType dtype_;
  bool fixed_;
  std::map<std::string, Shape> sizes_;
};

inline std::string Fused(const AttentionNet& net, const Names& fetches) {
  ProgramDesc program = net.main;
  PassContext context{
      DefaultOps(), {net.feeds.begin(), net.feeds.end()}, {fetches.begin(), fetches.end()}};
  RunPasses(program, context, {"fuse_attention"});
  return Listing(program);
}

inline size_t Count(const std::string& text, const std::string& type) {
  size_t count = 0;
  for (size_t at = text.find(" = " + type + "("); at != text.npos;
       at = text.find(" = " + type + "(", at + 1))
    ++count;
  return count;
}

inline double Largest(const Tensor& x) {
  double most = 0;
  const Tensor values = x.Cast(DType::kFloat64);
  for (int64_t i = 0; i < values.numel(); ++i)
    most = std::max(most, std::abs(values.data<double>()[i]));
  return most;
}

// With all passes as without any.
inline void ExpectSameValues(AttentionNet& net, const Names& fetches, double tolerance) {
  const std::vector<Tensor> expected =
      net.Run({.kernels = KernelMode::kReference, .optimize = false}, fetches);
  for (KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
    const std::vector<Tensor> got = net.Run({.kernels = mode}, fetches);
    double largest = 0;  // gradients that are 0 but for rounding are compared with the others
    for (const Tensor& tensor : expected) largest = std::max(largest, Largest(tensor));
    for (size_t f = 0; f < fetches.size(); ++f) {
      SCOPED_TRACE(fetches[f]);
      ASSERT_EQ(got[f].shape(), expected[f].shape());
      const Tensor a = expected[f].Cast(DType::kFloat64), b = got[f].Cast(DType::kFloat64);
      const double most = std::max(Largest(a), 1e-3 * largest);
      for (int64_t i = 0; i < a.numel(); ++i)
        ASSERT_NEAR(b.data<double>()[i], a.data<double>()[i], tolerance * most) << i;
    }
  }
}

// The pass acts, and does not change what is fetched.
inline void ExpectFused(AttentionNet& net, const Names& fetches, size_t forward, size_t backward,
                        double tolerance) {
  const std::string text = Fused(net, fetches);
  EXPECT_EQ(Count(text, "scaled_dot_product_attention"), forward) << text;
  EXPECT_EQ(Count(text, "scaled_dot_product_attention_grad"), backward) << text;
  for (const char* gone : {"softmax", "softmax_grad", "dropout", "dropout_grad"})
    EXPECT_EQ(Count(text, gone), 0u) << text;
  ExpectSameValues(net, fetches, tolerance);
}

// Not a bit differs.
inline void ExpectSameBits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].shape(), b[i].shape());
    const Tensor x = a[i].Cast(DType::kFloat64), y = b[i].Cast(DType::kFloat64);
    EXPECT_TRUE(std::equal(x.data<double>(), x.data<double>() + x.numel(), y.data<double>())) << i;
  }
}

inline void ExpectLeft(AttentionNet& net, const Names& fetches, const char* why) {
  EXPECT_EQ(Fused(net, fetches), Listing(net.main)) << why;
}

}  // namespace coracle
