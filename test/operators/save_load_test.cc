#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/test_data.h>

#include "../completeness.h"
#include "../op_test.h"

namespace coracle {
namespace {

std::string Bytes(const Tensor& tensor) {
  std::string bytes;
  AppendTensor(tensor, &bytes);
  return bytes;
}

const Tensor kSmall = Tensor::Of<float>({2, 2}, {1, 2.5f, -3, 4});

// One load op with declared outputs.
class Loading {
 public:
  explicit Loading(const std::string& type) : type_(type) {}
  Loading& Out(const std::string& name, DType dtype, const Shape& shape) {
    VarDesc& var = program_.Root().Var(name);
    var.SetShape(shape);
    var.SetDType(dtype);
    names_.push_back(name);
    return *this;
  }
  Loading& Attr(const std::string& name, Attribute value) {
    attrs_.push_back({name, std::move(value)});
    return *this;
  }
  VarDesc& Var(const std::string& name) { return program_.Root().Var(name); }
  Environment Run() {
    program_.Root().AppendOp(type_, {}, {{"Out", names_}}, attrs_);
    VerifyOrThrow(program_, DefaultOps());
    Environment env;
    Interpret(program_.Root(), DefaultOps(), env);
    return env;
  }
  std::string Error() {
    try {
      Run();
    } catch (const coracle::Error& e) {
      return e.message();
    }
    return "";
  }

 private:
  std::string type_;
  ProgramDesc program_;
  std::vector<std::string> names_;
  AttrList attrs_;
};

Loading Load(const std::string& path) {
  Loading loading("load");
  loading.Attr("file_path", path);
  return loading;
}

TEST(Save, WritesTheStream) {
  TemporaryDirectory directory;
  std::string path = directory.File("new/w");
  OpTest("save").TensorInput("X", kSmall).Attr("file_path", path).Run(KernelMode::kAuto, false);
  EXPECT_EQ(ReadFile(path), Bytes(kSmall));
}

TEST(Save, AsFloat16) {
  TemporaryDirectory directory;
  std::string path = directory.File("w");
  for (const char* type : {"save", "save_combine"}) {
    OpTest(type)
        .TensorInput("X", kSmall)
        .NoOutput("Y")
        .Attr("file_path", path)
        .Attr("save_as_fp16", true)
        .Run(KernelMode::kAuto, false);
    EXPECT_EQ(ReadFile(path), Bytes(kSmall.Cast(DType::kFloat16)));
  }
}

TEST(Save, DoesNotOverwriteWhenToldNotTo) {
  TemporaryDirectory directory;
  std::string path = directory.File("w");
  auto save = [&] {
    OpTest("save")
        .TensorInput("X", kSmall)
        .Attr("file_path", path)
        .Attr("overwrite", false)
        .Run(KernelMode::kAuto, false);
  };
  save();
  EXPECT_THROW(save(), Error);
}

TEST(Save, SelectedRows) {
  TemporaryDirectory directory;
  std::string path = directory.File("rows");
  ProgramDesc program;
  for (const char* name : {"r", "again"}) {
    program.Root().Var(name).SetType(VarType::kSelectedRows);
    program.Root().Var(name).SetShape({9, 2});
  }
  program.Root().AppendOp("save", {{"X", {"r"}}}, {}, {{"file_path", path}});
  program.Root().AppendOp("load", {}, {{"Out", {"again"}}}, {{"file_path", path}});
  Environment env;
  env["r"] = SelectedRows{{4, 1}, 9, kSmall.Clone()};
  Interpret(program.Root(), DefaultOps(), env);
  const auto& rows = std::get<SelectedRows>(env.at("again"));
  EXPECT_EQ(rows.rows, (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(rows.height, 9);
  EXPECT_TRUE(BitEqual(rows.value, kSmall));
}

TEST(Save, C1_PathMustNameAFile) {
  for (const char* path : {"", "-"}) {
    OpTest("save").TensorInput("X", kSmall).Attr("file_path", path).ExpectError("save.C1");
    OpTest("save_combine")
        .TensorInput("X", kSmall)
        .NoOutput("Y")
        .Attr("file_path", path)
        .ExpectError("save_combine.C1");
  }
}

TEST(Save, UnwritablePathsAreErrors) {
  OpTest("save")
      .TensorInput("X", kSmall)
      .Attr("file_path", "/proc/no/such/place")
      .ExpectError("/proc/no/such");
}

TEST(SaveCombine, StreamsFollowEachOther) {
  TemporaryDirectory directory;
  std::string path = directory.File("all");
  Tensor ids = Tensor::Of<int64_t>({3}, {1, 2, 3});
  OpTest("save_combine")
      .TensorInput("X", kSmall)
      .TensorInput("X", ids)
      .NoOutput("Y")
      .Attr("file_path", path)
      .Run(KernelMode::kAuto, false);
  EXPECT_EQ(ReadFile(path), Bytes(kSmall) + Bytes(ids));
}

TEST(SaveCombine, C2_NotToMemory) {
  OpTest("save_combine")
      .TensorInput("X", kSmall)
      .Attr("file_path", "x")
      .Attr("save_to_memory", true)
      .ExpectError("save_combine.C2");
}

TEST(SaveCombine, C3_DenseOnly) {
  ProgramDesc program;
  program.Root().Var("r").SetType(VarType::kSelectedRows);
  program.Root().AppendOp("save_combine", {{"X", {"r"}}}, {}, {{"file_path", "x"}});
  std::vector<Problem> problems = Verify(program, DefaultOps());
  ASSERT_FALSE(problems.empty());
  ExpectConstraint(problems[0].message, "save_combine.C3");
}

TEST(Load, GivesTheDeclaredTensor) {
  TemporaryDirectory directory;
  Tensor with_lod = kSmall.Clone();
  with_lod.lod() = {{0, 1, 2}};
  WriteFileAtomic(directory.File("w"), Bytes(with_lod));
  Environment env = Load(directory.File("w")).Out("w", DType::kFloat32, {2, 2}).Run();
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("w")), kSmall));
  EXPECT_EQ(std::get<Tensor>(env.at("w")).lod(), with_lod.lod());
  // Floating-point types are converted.
  env = Load(directory.File("w")).Out("w", DType::kFloat64, {2, 2}).Run();
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("w")), kSmall.Cast(DType::kFloat64)));
  env =
      Load(directory.File("w")).Attr("load_as_fp16", true).Out("w", DType::kFloat16, {2, 2}).Run();
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("w")), kSmall.Cast(DType::kFloat16)));
}

TEST(Load, OtherShapesTypesAndFilesAreErrors) {
  TemporaryDirectory directory;
  std::string path = directory.File("w");
  WriteFileAtomic(path, Bytes(kSmall));
  EXPECT_NE(Load(path).Out("w", DType::kFloat32, {4}).Error().find("declared float32[4]"),
            std::string::npos);
  EXPECT_NE(Load(path).Out("w", DType::kInt64, {2, 2}).Error(), "");
  EXPECT_NE(Load(path + "x").Out("w", DType::kFloat32, {2, 2}).Error().find("wx"),
            std::string::npos);
  WriteFileAtomic(path, Bytes(kSmall) + "?");
  EXPECT_NE(Load(path).Out("w", DType::kFloat32, {2, 2}).Error().find("left over"),
            std::string::npos);
  WriteFileAtomic(path, "not a tensor at all, surely");
  EXPECT_NE(Load(path).Out("w", DType::kFloat32, {2, 2}).Error(), "");
  // A device that never ends does not fill the memory.
  EXPECT_NE(Load("/dev/zero").Out("w", DType::kFloat32, {2, 2}).Error().find("larger than"),
            std::string::npos);
}

TEST(Load, PartOfAFile) {
  TemporaryDirectory directory;
  std::string path = directory.File("w");
  WriteFileAtomic(path, Bytes(Tensor::Of<float>({6}, {0, 1, 2, 3, 4, 5})));
  auto part = [&](int64_t seek) {
    return std::move(Load(path)
                         .Attr("seek", seek)
                         .Attr("shape", std::vector<int64_t>{1, 2})
                         .Out("w", DType::kFloat32, {1, 2}));
  };
  EXPECT_TRUE(BitEqual(std::get<Tensor>(part(3).Run().at("w")), Tensor::Of<float>({1, 2}, {3, 4})));
  EXPECT_NE(part(5).Error().find("from 5 on"), std::string::npos);
  EXPECT_NE(part(int64_t{1} << 62).Error(), "");
}

TEST(Load, C1_PathMustNameAFile) {
  ExpectConstraint(Load("-").Out("w", DType::kFloat32, {1}).Error(), "load.C1");
  Loading combine("load_combine");
  combine.Attr("file_path", std::string()).Out("w", DType::kFloat32, {1});
  ExpectConstraint(combine.Error(), "load_combine.C1");
}

TEST(Load, C2_ShapeMustBeKnown) {
  ExpectConstraint(Load("x").Out("w", DType::kFloat32, {-1, 2}).Error(), "load.C2");
  Loading combine("load_combine");
  combine.Attr("file_path", std::string("x")).Out("w", DType::kFloat32, {-1});
  ExpectConstraint(combine.Error(), "load_combine.C2");
}

TEST(Load, C3_SeekNeedsShape) {
  ExpectConstraint(Load("x").Attr("seek", int64_t{0}).Out("w", DType::kFloat32, {1}).Error(),
                   "load.C3");
}

TEST(Load, C4_ShapeIsThatOfOut) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2}, std::vector<int64_t>(12, 1), std::vector<int64_t>{-1}}) {
    ExpectConstraint(Load("x")
                         .Attr("seek", int64_t{0})
                         .Attr("shape", shape)
                         .Out("w", DType::kFloat32, {1})
                         .Error(),
                     "load.C4");
  }
}

TEST(LoadCombine, InTheOrderOfTheFile) {
  TemporaryDirectory directory;
  std::string path = directory.File("all");
  Tensor ids = Tensor::Of<int64_t>({3}, {1, 2, 3});
  std::string bytes = Bytes(kSmall) + Bytes(ids);
  WriteFileAtomic(path, bytes);
  for (bool memory : {false, true}) {
    Environment env = Loading("load_combine")
                          .Attr("file_path", memory ? bytes : path)
                          .Attr("model_from_memory", memory)
                          .Out("a", DType::kFloat32, {2, 2})
                          .Out("b", DType::kInt64, {3})
                          .Run();
    EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("a")), kSmall));
    EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("b")), ids));
  }
  Loading partial("load_combine");
  partial.Attr("file_path", path).Out("a", DType::kFloat32, {2, 2});
  EXPECT_NE(partial.Error().find("left over"), std::string::npos);
  Loading more("load_combine");
  more.Attr("file_path", path)
      .Out("a", DType::kFloat32, {2, 2})
      .Out("b", DType::kInt64, {3})
      .Out("c", DType::kInt64, {3});
  EXPECT_NE(more.Error(), "");
}

TEST(LoadCombine, C3_DenseOnly) {
  Loading loading("load_combine");
  loading.Attr("file_path", std::string("x")).Out("w", DType::kFloat32, {1});
  loading.Var("w").SetType(VarType::kSelectedRows);
  ExpectConstraint(loading.Error(), "load_combine.C3");
}

}  // namespace
}  // namespace coracle
