// Tensors side by side, and where two runs part. All numbers are derived by hand.

#include <coracle/framework/tensor/complex.h>
#include <coracle/inspect/compare_runs.h>
#include <coracle/inspect/inspect.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace coracle::compare_test {

using Kind = TensorDifference::Kind;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor Doubles(const std::vector<double>& values) {
  return Tensor::Of<double>({static_cast<int64_t>(values.size())}, values);
}

TEST(CompareTensors, WorstElement) {
  const Tensor a = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = Tensor::Of<float>({2, 3}, {1, 2.5f, 3, 4, 5, 8});
  const TensorDifference difference = CompareTensors("y", a, b, {});
  EXPECT_EQ(difference.kind, Kind::kValues);
  EXPECT_EQ(difference.outside, 2);
  EXPECT_EQ(difference.non_finite, 0);
  EXPECT_EQ(difference.max_absolute, 2);
  ASSERT_TRUE(difference.worst);
  EXPECT_EQ(difference.worst->index, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(difference.worst->a, (Complex{6}));
  EXPECT_EQ(difference.worst->b, (Complex{8}));
  EXPECT_EQ(difference.worst->absolute, 2);
  EXPECT_EQ(difference.worst->relative, 0.25);
  EXPECT_FALSE(CompareTensors("y", a, a, {}).Differs());
}

TEST(CompareTensors, TheToleranceIsThatOfB) {
  // |1 - 2| = 1 is half of 2, but all of 1.
  const Tolerance half{0.5, 0};
  EXPECT_EQ(CompareTensors("y", Doubles({1}), Doubles({2}), half).outside, 0);
  EXPECT_EQ(CompareTensors("y", Doubles({2}), Doubles({1}), half).outside, 1);
  EXPECT_EQ(CompareTensors("y", Doubles({2}), Doubles({1}), {0, 1}).outside, 0);
  EXPECT_EQ(CompareTensors("y", Doubles({2}), Doubles({1}), {0, 0.75}).outside, 1);
  EXPECT_EQ(CompareTensors("y", Doubles({1}), Doubles({1}), {0, 0}).outside, 0);
}

TEST(CompareTensors, NansAndInfinities) {
  const TensorDifference same =
      CompareTensors("y", Doubles({kNan, kInf, -kInf, 1}), Doubles({kNan, kInf, -kInf, 1}), {});
  EXPECT_FALSE(same.Differs());
  EXPECT_EQ(same.max_absolute, 0);
  const TensorDifference other = CompareTensors("y", Doubles({5, kInf, kInf, kNan, 1}),
                                                Doubles({1, -kInf, kInf, 2, kNan}), {});
  EXPECT_EQ(other.outside, 4);
  EXPECT_EQ(other.non_finite, 3);
  EXPECT_EQ(other.max_absolute, 4);
  EXPECT_EQ(other.worst->index, std::vector<int64_t>{1});
}

TEST(CompareTensors, IntegersAreExact) {
  // As doubles these two are the same.
  const Tensor a = Tensor::Of<int64_t>({1}, {9007199254740993});
  const Tensor b = Tensor::Of<int64_t>({1}, {9007199254740992});
  const TensorDifference difference = CompareTensors("n", a, b, {0, 0.5});
  EXPECT_EQ(difference.outside, 1);
  EXPECT_EQ(difference.worst->absolute, 1);
  // With a tolerance too, unless it is said to be for integers.
  const Tensor many = Tensor::Of<int64_t>({1}, {200000}), more = Tensor::Of<int64_t>({1}, {200001});
  EXPECT_EQ(CompareTensors("n", many, more, {}).outside, 1);
  EXPECT_EQ(CompareTensors("n", many, more, {.exact_integers = false}).outside, 0);
  EXPECT_EQ(CompareTensors("n", many.Cast(DType::kInt32), more, {.same_dtype = false}).outside, 1);
  EXPECT_EQ(*difference.worst->integer_a, 9007199254740993);
  EXPECT_EQ(ElementText(difference.worst->a, difference.worst->integer_a, DType::kInt64),
            "9007199254740993");
  // And against a float64.
  const Tensor wide = Doubles({9007199254740992, -0.5, 1e300}),
               whole = Tensor::Of<int64_t>({3}, {9007199254740993, -1, 5});
  for (const bool turned : {false, true}) {
    const TensorDifference mixed =
        turned ? CompareTensors("n", wide, whole, {.relative = 0, .absolute = 0.75})
               : CompareTensors("n", whole, wide, {.relative = 0, .absolute = 0.75});
    EXPECT_EQ(mixed.outside, 2);
    EXPECT_EQ(mixed.worst->index, std::vector<int64_t>{2});
    EXPECT_EQ(mixed.worst->absolute, 1e300);
  }
  EXPECT_EQ(CompareTensors("n", Tensor::Of<int64_t>({1}, {INT64_MAX}), Doubles({0x1p63}), {})
                .worst->absolute,
            1);
  const Tensor low = Tensor::Of<int64_t>({1}, {INT64_MIN}),
               high = Tensor::Of<int64_t>({1}, {INT64_MAX});
  EXPECT_EQ(CompareTensors("n", low, high, {}).worst->absolute, 18446744073709551615.0);
}

TEST(CompareTensors, UnsignedIntegersAreExact) {
  constexpr uint64_t kLarge = 18446744073709551615U;
  const Tensor a = Tensor::Of<uint64_t>({2}, {kLarge, 5}),
               b = Tensor::Of<uint64_t>({2}, {kLarge - 1, 5});
  const TensorDifference difference = CompareTensors("n", a, b, {});
  EXPECT_EQ(difference.outside, 1);
  EXPECT_EQ(difference.worst->absolute, 1);
  EXPECT_EQ(difference.worst->text_a, "18446744073709551615");
  EXPECT_EQ(ElementText(difference.worst->a, difference.worst->integer_a, DType::kUInt64,
                        difference.worst->text_a),
            "18446744073709551615");
  // Against int64 and float64, which would round them.
  const Tensor signs = Tensor::Of<int64_t>({2}, {-1, 5});
  EXPECT_EQ(CompareTensors("n", a, signs, {.same_dtype = false}).outside, 1);
  const Tensor odd = Tensor::Of<uint64_t>({1}, {9007199254740993}),
               even = Tensor::Of<int64_t>({1}, {9007199254740992});
  for (const bool turned : {false, true}) {
    const Tolerance any{.same_dtype = false};
    const TensorDifference mixed =
        turned ? CompareTensors("n", even, odd, any) : CompareTensors("n", odd, even, any);
    EXPECT_EQ(mixed.outside, 1);
    EXPECT_EQ(mixed.worst->absolute, 1);
  }
  const Tolerance absolute{.relative = 0, .absolute = 0.5, .same_dtype = false};
  EXPECT_EQ(CompareTensors("n", odd, Doubles({9007199254740992}), absolute).worst->absolute, 1);
  EXPECT_EQ(CompareTensors("n", Doubles({-2.5}), Tensor::Of<uint64_t>({1}, {1}), absolute)
                .worst->absolute,
            3.5);
}

TEST(CompareTensors, StringsAreShown) {
  const Tensor a = Tensor::OfStrings({3}, std::vector<std::string>{"x", "one", "z"});
  const Tensor b = Tensor::OfStrings({3}, std::vector<std::string>{"x", "two", "y"});
  const TensorDifference difference = CompareTensors("s", a, b, {});
  EXPECT_EQ(difference.outside, 2);
  EXPECT_EQ(difference.worst->text_a, "'one'");
  EXPECT_EQ(difference.worst->text_b, "'two'");
  // Of long texts, the part where they differ.
  const std::string same(1000, 's');
  const TensorDifference longer =
      CompareTensors("s", Tensor::OfStrings({1}, std::vector<std::string>{same + "a"}),
                     Tensor::OfStrings({1}, std::vector<std::string>{same + "b"}), {});
  EXPECT_NE(longer.worst->text_a.find("sa'"), std::string::npos) << longer.worst->text_a;
  EXPECT_NE(longer.worst->text_a.find("of 1001"), std::string::npos) << longer.worst->text_a;
  EXPECT_LT(longer.worst->text_a.size(), 120U);
}

TEST(CompareTensors, Complex) {
  const Tensor a = Tensor::Of<complex64>({1}, {{3, 4}}), b = Tensor::Of<complex64>({1}, {{0, 0}});
  const TensorDifference difference = CompareTensors("z", a, b, {});
  EXPECT_EQ(difference.worst->absolute, 5);
  EXPECT_EQ(difference.worst->relative, kInf);
}

TEST(CompareTensors, TypesAndSequences) {
  const Tensor a = Tensor::Of<float>({2}, {1, 2});
  EXPECT_EQ(CompareTensors("y", a, a.Reshaped({2, 1}), {}).kind, Kind::kShape);
  const Tensor wide = a.Cast(DType::kFloat64);
  EXPECT_EQ(CompareTensors("y", a, wide, {}).kind, Kind::kDType);
  EXPECT_EQ(CompareTensors("y", a, wide, {0, 0, false}).kind, Kind::kEqual);
  Tensor sequences = a.Clone();
  sequences.lod() = {{0, 1, 2}};
  EXPECT_EQ(CompareTensors("y", a, sequences, {}).kind, Kind::kLod);
  const Tensor none = Tensor::Zeros(DType::kFloat32, {0});
  EXPECT_FALSE(CompareTensors("y", none, none, {}).Differs());
}

TEST(CompareNamed, MissingOnEitherSide) {
  const Tensor t = Doubles({1});
  const auto differences = CompareNamed({{"a", t}, {"b", t}}, {{"c", t}, {"a", t}}, {});
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].kind, Kind::kEqual);
  EXPECT_EQ(differences[1].name, "b");
  EXPECT_EQ(differences[1].kind, Kind::kOnlyInA);
  EXPECT_FALSE(differences[1].b);
  EXPECT_EQ(differences[2].name, "c");
  EXPECT_EQ(differences[2].kind, Kind::kOnlyInB);
  EXPECT_NE(ErrorOf([&] {
              CompareNamed({{"a", t}, {"a", t}}, {}, {});
            }).find("'a' occurs twice"),
            std::string::npos);
}

// --- runs ---

void Declare(BlockDesc& root, const std::string& name, const Shape& shape) {
  root.Var(name).SetShape(shape);
}

constexpr int64_t kMany = 8192;  // fewer elements are not worth a fused op

// a = 2 x, b = relu(a), c = factor b
ProgramDesc Chain(float factor) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "a", "b", "c"}) Declare(root, name, {kMany});
  root.AppendOp("scale", {{"X", {"x"}}}, {{"Out", {"a"}}}, {{"scale", 2.f}});
  root.AppendOp("relu", {{"X", {"a"}}}, {{"Out", {"b"}}});
  root.AppendOp("scale", {{"X", {"b"}}}, {{"Out", {"c"}}}, {{"scale", factor}});
  return program;
}

RunWay WayOf(const ProgramDesc& program, bool passes) {
  RunWay way;
  way.program = &program;
  way.options.optimize = passes;
  Tensor x = Tensor::Full<float>(program.Root().FindVar("x")->shape(), -1.f);
  x.data<float>()[0] = 1;
  way.feeds = {{"x", x}};
  return way;
}

TEST(CompareRuns, NamesTheOp) {
  const ProgramDesc p = Chain(3), q = Chain(3.5f);
  const RunsDifference runs = CompareRuns(WayOf(p, false), WayOf(q, false), {});
  ASSERT_EQ(runs.compared.size(), 3u);
  ASSERT_EQ(runs.first, 2);
  EXPECT_EQ(runs.compared[2].difference.name, "c");
  EXPECT_EQ(runs.compared[2].writer.op, 2);
  EXPECT_EQ(runs.compared[2].writer.type, "scale");
  EXPECT_EQ(runs.compared[2].difference.worst->a, (Complex{6}));
  EXPECT_EQ(runs.compared[2].difference.worst->b, (Complex{7}));
  EXPECT_EQ(runs.inputs, std::vector<std::string>{"b"});
  EXPECT_TRUE(runs.between.empty());
  EXPECT_EQ(runs.not_compared, 0);
  EXPECT_EQ(CompareRuns(WayOf(p, false), WayOf(p, false), {}).first, -1);
  EXPECT_EQ(CompareRuns(WayOf(p, false), WayOf(q, false), {0.25, 0}).first, -1);
}

// Where a pass makes one op of three, what lies between is fetched in further runs.
TEST(CompareRuns, LooksIntoTheOpsThatAPassJoins) {
  const ProgramDesc p = Chain(3), q = Chain(3.5f);
  const WrittenTensors joined = KeepWritten(WayOf(p, true));
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined.begin()->first, "c");
  const RunsDifference runs = CompareRuns(WayOf(p, true), WayOf(q, false), {});
  ASSERT_EQ(runs.compared.size(), 3u);
  EXPECT_EQ(runs.first, 2);
  EXPECT_EQ(runs.inputs, std::vector<std::string>{"b"});
  EXPECT_TRUE(runs.between.empty());
  EXPECT_FALSE(runs.hidden);
  EXPECT_EQ(CompareRuns(WayOf(p, true), WayOf(p, false), {}).not_compared, 2);
}

// The second program calls b otherwise: it cannot be asked for it.
TEST(CompareRuns, AVariableThatOneProgramLacks) {
  const ProgramDesc p = Chain(3);
  ProgramDesc q = Chain(3.5f);
  BlockDesc& root = q.Root();
  Declare(root, "t", {kMany});
  root.op(1).SetOutput("Out", {"t"});
  root.op(2).SetInput("X", {"t"});
  root.RemoveVar("b");
  const RunsDifference runs = CompareRuns(WayOf(p, false), WayOf(q, false), {});
  ASSERT_EQ(runs.first, 1);
  EXPECT_EQ(runs.compared[1].difference.name, "c");
  EXPECT_EQ(runs.not_compared, 2);  // b and t
}

// The fetches of one program must be in the other run too: a missing variable does not count
// as equal.
TEST(CompareRuns, AResultThatOneRunLacks) {
  using Kind = TensorDifference::Kind;
  const ProgramDesc p = Chain(3);
  ProgramDesc q = Chain(3);
  BlockDesc& root = q.Root();
  Declare(root, "d", {kMany});
  root.op(2).SetOutput("Out", {"d"});
  root.RemoveVar("c");
  const RunsDifference runs = CompareRuns(WayOf(p, false), WayOf(q, false), {});
  EXPECT_EQ(runs.first, -1);
  EXPECT_TRUE(runs.Differs());
  ASSERT_EQ(runs.other_results.size(), 2u);
  EXPECT_EQ(runs.other_results[0].name, "c");
  EXPECT_EQ(runs.other_results[0].kind, Kind::kOnlyInA);
  EXPECT_EQ(runs.other_results[1].name, "d");
  EXPECT_EQ(runs.other_results[1].kind, Kind::kOnlyInB);
  EXPECT_EQ(runs.not_compared, 0);
  // Saved values that lack it.
  RunWay saved;
  saved.program = &p;
  saved.saved = std::make_shared<WrittenTensors>(KeepWritten(WayOf(q, false)));
  EXPECT_TRUE(CompareRuns(WayOf(p, false), saved, {}).Differs());
  // Where all that ops write is fetched, only results must be in both.
  RunWay all = WayOf(p, false), less = WayOf(p, false);
  all.fetches = {"a", "b", "c"};
  less.fetches = {"c"};
  all.fetches_all = less.fetches_all = true;
  EXPECT_FALSE(CompareRuns(all, less, {}).Differs());
}

// A fetched variable that no op writes, a feed here.
TEST(CompareRuns, AResultThatNoOpWrites) {
  const ProgramDesc p = Chain(3);
  RunWay a = WayOf(p, false), b = WayOf(p, false);
  a.fetches = b.fetches = {"x", "b"};
  b.feeds["x"] = Tensor::Full<float>({kMany}, -1.f);
  b.feeds["x"].data<float>()[0] = 1;
  EXPECT_FALSE(CompareRuns(a, b, {}).Differs());
  b.feeds["x"].data<float>()[1] = -2;
  const RunsDifference runs = CompareRuns(a, b, {});
  ASSERT_EQ(runs.other_results.size(), 1u);
  EXPECT_TRUE(runs.other_results[0].Differs());
}

// y = factor, which a pass computes in advance: no op writes it.
ProgramDesc Constant(float factor) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "c", "y", "z"}) Declare(root, name, {2});
  root.AppendOp("fill_constant", {}, {{"Out", {"c"}}},
                {{"shape", std::vector<int64_t>{2}}, {"value", 1.f}});
  root.AppendOp("scale", {{"X", {"c"}}}, {{"Out", {"y"}}}, {{"scale", factor}});
  root.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"z"}}});
  return program;
}

TEST(CompareRuns, AResultThatIsKnownBeforeTheRun) {
  const ProgramDesc p = Constant(2), q = Constant(3);
  const RunsDifference runs = CompareRuns(WayOf(p, true), WayOf(q, true), {});
  ASSERT_GE(runs.first, 0);
  const ComparedVariable& first = runs.compared[static_cast<size_t>(runs.first)];
  EXPECT_EQ(first.difference.name, "y");
  EXPECT_EQ(first.writer.op, 1);
  EXPECT_EQ(runs.inputs, std::vector<std::string>{"c"});
}

// h = x + 1, then h = factor h in place, then y = h + 1.
ProgramDesc InPlace(float factor) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "h", "y"}) Declare(root, name, {2});
  root.AppendOp("scale", {{"X", {"x"}}}, {{"Out", {"h"}}}, {{"bias", 1.f}});
  root.AppendOp("scale", {{"X", {"h"}}}, {{"Out", {"h"}}}, {{"scale", factor}});
  root.AppendOp("scale", {{"X", {"h"}}}, {{"Out", {"y"}}}, {{"bias", 1.f}});
  return program;
}

TEST(CompareRuns, EachValueOfAVariable) {
  const ProgramDesc p = InPlace(2), q = InPlace(4);
  const WrittenTensors written = KeepWritten(WayOf(p, false));
  ASSERT_EQ(written.at("h").size(), 2u);
  EXPECT_TRUE(BitEqual(written.at("h")[0], Tensor::Of<float>({2}, {2, 0})));
  EXPECT_TRUE(BitEqual(written.at("h")[1], Tensor::Of<float>({2}, {4, 0})));
  const RunsDifference runs = CompareRuns(WayOf(p, false), WayOf(q, false), {});
  ASSERT_EQ(runs.first, 0);
  EXPECT_EQ(runs.compared[0].difference.name, "h");
  EXPECT_EQ(runs.compared[0].writer.op, 1);
  EXPECT_EQ(runs.inputs, std::vector<std::string>{"h"});  // as op 0 wrote it
  EXPECT_TRUE(runs.between.empty());
}

TEST(CompareRuns, SavedValuesStandForARun) {
  const ProgramDesc p = InPlace(2), q = InPlace(4);
  const NamedTensors arrays = ToArrays(KeepWritten(WayOf(q, false)), q);
  ASSERT_EQ(arrays.size(), 3u);
  EXPECT_EQ(arrays[0].first, "h@WRITE@0");
  EXPECT_EQ(arrays[1].first, "h");
  EXPECT_EQ(arrays[2].first, "y");
  RunWay saved;
  saved.program = &q;
  saved.saved = std::make_shared<WrittenTensors>(FromArrays(arrays));
  const RunsDifference runs = CompareRuns(WayOf(p, false), saved, {});
  ASSERT_EQ(runs.first, 0);
  EXPECT_EQ(runs.compared[0].writer.op, 1);
  EXPECT_NE(ErrorOf([&] { FromArrays({arrays[0]}); }).find("the values of 'h' are incomplete"),
            std::string::npos);
}

// product = x w; y = scale (product - mean) / sqrt(variance) + shift; out = softmax(y). With
// several branches, each has its own variables except x: product, product1, ...
class FoldedNorm {
 public:
  explicit FoldedNorm(int64_t n, int branches = 1) : n_(n) {
    Declare(program_.Root(), "x", {1, n});
    for (int i = 0; i < branches; ++i) AppendBranch(i == 0 ? "" : std::to_string(i));
  }
  RunWay Way(bool folded) const {
    RunWay way;
    way.program = &program_;
    way.options.optimize = folded;
    if (folded)
      way.options.disabled_passes = {"fuse_fc", "fuse_elementwise", "common_subexpressions"};
    way.feeds = {{"x", Drawn({1, n_})}};
    way.parameters = [this] {
      Scope scope;
      for (const std::string& name : PersistableNames(program_))
        scope.Set(name, Drawn(program_.Root().FindVar(name)->shape()));
      return scope;
    };
    return way;
  }

 private:
  void AppendBranch(const std::string& number) {
    BlockDesc& root = program_.Root();
    const std::string product = "product" + number, y = "y" + number, out = "out" + number;
    const std::string saved_mean = "saved_mean" + number, saved_variance = "saved_var" + number;
    const std::string scale = "scale" + number, shift = "shift" + number, w = "w" + number;
    const std::string mean = "mean" + number, variance = "variance" + number;
    for (const std::string& name : {scale, shift, mean, variance, w}) {
      Declare(root, name, name == w ? Shape{n_, n_} : Shape{n_});
      root.FindVar(name)->SetPersistable(true);
    }
    for (const std::string& name : {product, y, out}) Declare(root, name, {1, n_});
    for (const std::string& name : {saved_mean, saved_variance}) Declare(root, name, {n_});
    root.AppendOp("mul", {{"X", {"x"}}, {"Y", {w}}}, {{"Out", {product}}});
    root.AppendOp("batch_norm",
                  {{"X", {product}},
                   {"Scale", {scale}},
                   {"Bias", {shift}},
                   {"Mean", {mean}},
                   {"Variance", {variance}}},
                  {{"Y", {y}},
                   {"MeanOut", {mean}},
                   {"VarianceOut", {variance}},
                   {"SavedMean", {saved_mean}},
                   {"SavedVariance", {saved_variance}}},
                  {{"is_test", true}});
    root.AppendOp("softmax", {{"X", {y}}}, {{"Out", {out}}});
  }
  // 1/2, 1/3, 1/4, ...
  static Tensor Drawn(const Shape& shape) {
    Tensor tensor(DType::kFloat32, shape);
    for (int64_t i = 0; i < tensor.numel(); ++i)
      tensor.data<float>()[i] = 1 / static_cast<float>(i + 2);
    return tensor;
  }
  int64_t n_;
  ProgramDesc program_;
};

// The batch_norm is folded into the product before it. The product's name then means the scaled
// product, which is not an error.
TEST(CompareRuns, ANameThatAPassUsesForAnotherValue) {
  const FoldedNorm net(2);
  const WrittenTensors folded = KeepWritten(net.Way(true));
  ASSERT_EQ(folded.count("product"), 1u);
  // w = [1/2 1/3; 1/4 1/5]: x w = [1/4 + 1/12, 1/6 + 1/15], times scale / sqrt(variance).
  EXPECT_NEAR(folded.at("product").back().data<float>()[0], std::sqrt(1.0 / 2) / 3, 1e-4);
  EXPECT_NEAR(folded.at("product").back().data<float>()[1], std::sqrt(1.0 / 3) * 7 / 30, 1e-4);
  const RunsDifference runs = CompareRuns(net.Way(true), net.Way(false), {});
  EXPECT_EQ(runs.first, -1);
  EXPECT_EQ(runs.renamed, std::vector<std::string>{"product"});
}

// Folding changes the last bits. If the product is fetched, there is no folding and no difference.
TEST(CompareRuns, ADifferenceThatPassesMake) {
  const FoldedNorm net(64);
  const RunsDifference runs = CompareRuns(net.Way(true), net.Way(false), {0, 0});
  ASSERT_GE(runs.first, 0);
  EXPECT_EQ(runs.compared[static_cast<size_t>(runs.first)].difference.name, "out");
  EXPECT_TRUE(runs.hidden);
  ASSERT_EQ(runs.between.size(), 2u);
  EXPECT_EQ(runs.between[0].type, "mul");
  EXPECT_EQ(runs.between[1].type, "batch_norm");
  EXPECT_FALSE(CompareRuns(net.Way(true), net.Way(true), {0, 0}).first >= 0);
}

// Many products that differ in name only: those that were not fetched count as undecided.
TEST(CompareRuns, WhatWasNotTriedIsNotEqual) {
  const FoldedNorm few(2, 120), many(2, 140);
  const RunsDifference decided = CompareRuns(few.Way(true), few.Way(false), {});
  EXPECT_EQ(decided.renamed.size(), 120u);
  EXPECT_FALSE(decided.Differs());
  const RunsDifference runs = CompareRuns(many.Way(true), many.Way(false), {});
  EXPECT_EQ(runs.first, -1);
  EXPECT_EQ(runs.renamed.size(), 128u);
  EXPECT_EQ(runs.untried.size(), 12u);
  EXPECT_TRUE(runs.Differs());
}

TEST(CompareRuns, AFeedThatIsMissing) {
  const ProgramDesc p = Chain(3);
  RunWay way = WayOf(p, false);
  way.feeds.clear();
  EXPECT_NE(ErrorOf([&] { KeepWritten(way); }).find("'x'"), std::string::npos);
}
}  // namespace coracle::compare_test
