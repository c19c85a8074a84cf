// The command on tensors that are more than rows of real numbers: complex ones, sequences.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/test/tools/cli.h>
#include <fmt/format.h>

#include <limits>

namespace coracle::cli_tensors_test {

TEST_F(Cli, ComplexNumbers) {
  WriteFileAtomic(Path("z.pbtxt"), R"(
    data { name: "x" shape: [2] dtype: complex64 stop_gradient: false }
    layer { op { elementwise_mul { X: ["x"] Y: ["x"] Out: ["y"] } } }
    layer { op { abs { X: ["y"] Out: ["a"] } } }
    layer { op { mean { X: ["a"] Out: ["loss"] } } })");
  Expect("coracle build z.pbtxt --out=z.pb", 0, {});
  const auto feed = [&](complex64 first) {
    WriteNpz({{"x", Tensor::Of<complex64>({2}, {first, complex64(3, 0)})}}, Path("in.npz"));
  };
  feed({1, 2});
  Expect(
      "coracle run z.pb --feed=in.npz --fetch=y,a --out=out.npz", 0,
      {"y: complex64[2], mean 3+2i: -3+4i 9+0i\n", "a: float32[2], min 5, mean 7, max 9: 5 9\n"});
  EXPECT_TRUE(BitEqual(ReadNpz(Path("out.npz")).at(0).second,
                       Tensor::Of<complex64>({2}, {{-3, 4}, {9, 0}})));
  Expect("coracle check-grad z.pb --loss=loss --wrt=x --feed=in.npz", 0, {"  ok\n"});
  Expect("coracle check-grad z.pb --loss=y --wrt=x --feed=in.npz", 1,
         {"the loss 'y' is complex128[2]; it must be a floating-point tensor"});
  feed({1, std::numeric_limits<float>::quiet_NaN()});
  Expect("coracle run z.pb --feed=in.npz --fetch=a --check_nan_inf", 1,
         {"output var 'y' complex64[2] has a nan or inf at index 0"});
}

// All 64 bits of them.
TEST_F(Cli, LargeIntegersInCsvFiles) {
  WriteFileAtomic(Path("copy.pbtxt"), R"(
    data { name: "x" shape: [-1] dtype: uint64 }
    layer { op { assign { X: ["x"] Out: ["y"] } } })");
  Expect("coracle build copy.pbtxt --out=copy.pb", 0, {});
  const auto feed = [&](const std::string& cells) {
    WriteFileAtomic(Path("in.csv"), "x\n" + cells);
  };
  const std::string run = "coracle run copy.pb --feed=in.csv --fetch=y --out=out.csv";
  feed("18446744073709551615\n3\n");
  Expect(run, 0, {"18446744073709551615"});
  EXPECT_EQ(ReadFile(Path("out.csv")), "y\n18446744073709551615\n3\n");
  const std::string wrong = "the column 'x' holds a number that is not a valid ";
  feed("-1\n");
  Expect(run, 1, {wrong + "uint64"});
  feed("18446744073709551616\n");
  Expect(run, 1, {wrong + "uint64"});
  WriteFileAtomic(Path("less.csv"), "y\n18446744073709551614\n3\n");
  Expect("coracle compare out.csv less.csv", 1,
         {"18446744073709551615 against 18446744073709551614 (absolute 1,"});
}

// The offsets of sequences are read and written together with their tensors.
TEST_F(Cli, SequencesInNpzFiles) {
  WriteFileAtomic(Path("pool.pbtxt"), R"(
    data { name: "x" shape: [-1, 1] lod_level: 1 stop_gradient: false }
    layer { op { sequence_pool { X: ["x"] Out: ["sum"] pooltype: "SUM" } } }
    layer { op { sequence_softmax { X: ["x"] Out: ["soft"] } } }
    layer { op { mean { X: ["sum"] Out: ["loss"] } } })");
  Expect("coracle build pool.pbtxt --out=pool.pb", 0, {});
  const Tensor x = Tensor::Of<float>({3, 1}, {1, 2, 4});
  const auto feed = [&](const std::vector<std::vector<int64_t>>& levels) {
    NamedTensors arrays = {{"x", x}};
    for (size_t k = 0; k < levels.size(); ++k) {
      arrays.emplace_back(fmt::format("x@LOD@{}", k),
                          Tensor::Of<int64_t>({static_cast<int64_t>(levels[k].size())}, levels[k]));
    }
    WriteNpz(arrays, Path("in.npz"));
  };
  const std::string run = "coracle run pool.pb --feed=in.npz --fetch=sum,soft";
  feed({{0, 2, 2, 3}});
  Expect(
      run + " --out=out.npz", 0,
      {"sum: float32[3, 1], min 0, ", ": 3 0 4\n", "soft: float32[3, 1], LoD [0, 2, 2, 3], min"});
  const NamedTensors out = ReadNpz(Path("out.npz"));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1].first, "soft");
  EXPECT_EQ(out[1].second.lod(), (LoD{{0, 2, 2, 3}}));
  feed({{0, 2, 3}, {0, 1, 3, 3}});
  Expect("coracle run pool.pb --feed=in.npz --fetch=sum", 0,
         {"sum: float32[3, 1], LoD [0, 2, 3], min 0", ": 1 6 0\n"});
  Expect("coracle check-grad pool.pb --loss=loss --wrt=x --feed=in.npz", 0, {"ok"});

  const std::string wrong = "the LoD of 'x' float32[3, 1] is wrong: level 0 ";
  feed({{0, 2, 1, 3}});
  Expect(run, 1, {wrong + "decreases from 2 to 1 at 2"});
  feed({{0, 4}});
  Expect(run, 1, {wrong + "ends with 4 where there are 3 rows"});
  feed({{1, 3}});
  Expect(run, 1, {wrong + "does not begin with 0"});
  feed({{0, -1, 3}});
  Expect(run, 1, {"in.npz: 'x@LOD@0' has the offset -1"});
  feed({});
  Expect(run, 1, {"sequence_pool.C2"});
  WriteNpz({{"x", x}, {"x@LOD@1", Tensor::Of<int64_t>({2}, {0, 3})}}, Path("in.npz"));
  Expect(run, 1, {"in.npz: 'x' has level 1 of LoD, but no 'x@LOD@0'"});
  WriteNpz({{"x", x}, {"y@LOD@0", Tensor::Of<int64_t>({2}, {0, 3})}}, Path("in.npz"));
  Expect(run, 1, {"in.npz: there are offsets 'y@LOD@0' without 'y'"});
  WriteNpz({{"x", x}, {"x@LOD@0", Tensor::Of<float>({2}, {0, 3})}}, Path("in.npz"));
  Expect(run, 1, {"in.npz: 'x@LOD@0' must be a vector of integers, got float32[2]"});
  WriteNpz(
      {{"x", Tensor(DType::kFloat32, {0, 1})}, {"x@LOD@0", Tensor::Of<int64_t>({3}, {0, 0, 0})}},
      Path("in.npz"));
  Expect(run, 0, {"sum: float32[2, 1]", ": 0 0\n", "soft: float32[0, 1], LoD [0, 0, 0]\n"});
  WriteNpz({{"x", Tensor(DType::kFloat32, {0, 1})}, {"x@LOD@0", Tensor::Of<int64_t>({1}, {0})}},
           Path("in.npz"));
  Expect(run, 0, {"sum: float32[0, 1]\n", "soft: float32[0, 1], LoD [0]\n"});
}
}  // namespace coracle::cli_tensors_test
