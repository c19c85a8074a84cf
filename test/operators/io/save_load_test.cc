#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>
#include <coracle/test/test_data.h>

namespace coracle::save_load_test {

std::string Bytes(const Tensor& tensor) {
  std::string bytes;
  AppendTensor(tensor, &bytes);
  return bytes;
}

const Tensor kSmall = Tensor::Of<float>({2, 2}, {1, 2.5f, -3, 4});

// One load op with declared outputs.
class Loading {
 public:
  Loading(const std::string& type, const std::string& directory)
      : type_(type), directory_(directory) {}
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
  VarValues Run() {
    program_.Root().AppendOp(type_, {}, {{"Out", names_}}, attrs_);
    VerifyOrThrow(program_, DefaultOps());
    VarValues env;
    Interpret(program_.Root(), DefaultOps(), env, {.allow_files = directory_});
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
  std::string type_, directory_;
  ProgramDesc program_;
  std::vector<std::string> names_;
  AttrList attrs_;
};

// `path` begins in `directory`, which is allowed.
Loading Load(const TemporaryDirectory& directory, const std::string& path) {
  Loading loading("load", directory.path());
  loading.Attr("file_path", path);
  return loading;
}

TEST(Save, WritesTheStream) {
  TemporaryDirectory directory;
  OpTest("save")
      .TensorInput("X", kSmall)
      .Attr("file_path", "new/w")
      .AllowFiles(directory.path())
      .Run(KernelMode::kAuto, false);
  EXPECT_EQ(ReadFile(directory.File("new/w")), Bytes(kSmall));
}

TEST(Save, AsFloat16) {
  TemporaryDirectory directory;
  for (const char* type : {"save", "save_combine"}) {
    OpTest(type)
        .TensorInput("X", kSmall)
        .NoOutput("Y")
        .Attr("file_path", "w")
        .Attr("save_as_fp16", true)
        .AllowFiles(directory.path())
        .Run(KernelMode::kAuto, false);
    EXPECT_EQ(ReadFile(directory.File("w")), Bytes(kSmall.Cast(DType::kFloat16)));
  }
}

TEST(Save, DoesNotOverwriteWhenToldNotTo) {
  TemporaryDirectory directory;
  auto save = [&] {
    OpTest("save")
        .TensorInput("X", kSmall)
        .Attr("file_path", "w")
        .Attr("overwrite", false)
        .AllowFiles(directory.path())
        .Run(KernelMode::kAuto, false);
  };
  save();
  EXPECT_THROW(save(), Error);
}

TEST(Save, SelectedRows) {
  TemporaryDirectory directory;
  const std::string path = "rows";
  ProgramDesc program;
  for (const char* name : {"r", "again"}) {
    program.Root().Var(name).SetType(VarType::kSelectedRows);
    program.Root().Var(name).SetShape({9, 2});
  }
  program.Root().AppendOp("save", {{"X", {"r"}}}, {}, {{"file_path", path}});
  program.Root().AppendOp("load", {}, {{"Out", {"again"}}}, {{"file_path", path}});
  VarValues env;
  env["r"] = SelectedRows{{4, 1}, 9, kSmall.Clone()};
  Interpret(program.Root(), DefaultOps(), env, {.allow_files = directory.path()});
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

TEST(Save, NoFilesAreTouchedUnlessAllowed) {
  TemporaryDirectory directory;
  for (const char* type : {"save", "save_combine"}) {
    OpTest(type)
        .TensorInput("X", kSmall)
        .NoOutput("Y")
        .Attr("file_path", directory.File("w"))
        .ExpectError(": the program names the file");
    OpTest(type)
        .TensorInput("X", kSmall)
        .NoOutput("Y")
        .Attr("file_path", directory.File("w"))
        .AllowFiles(directory.path())
        .ExpectError("only paths that begin in the allowed directory");
  }
  EXPECT_FALSE(FileExists(directory.File("w")));
  EXPECT_NE(Loading("load", "")
                .Attr("file_path", std::string("w"))
                .Out("w", DType::kFloat32, {1})
                .Error(),
            "");
}

TEST(Save, UnwritablePathsAreErrors) {
  OpTest("save")
      .TensorInput("X", kSmall)
      .Attr("file_path", "no/such/place")
      .AllowFiles("/proc")
      .ExpectError("cannot write 'no/such/place'");
}

TEST(SaveCombine, StreamsFollowEachOther) {
  TemporaryDirectory directory;
  Tensor ids = Tensor::Of<int64_t>({3}, {1, 2, 3});
  OpTest("save_combine")
      .TensorInput("X", kSmall)
      .TensorInput("X", ids)
      .NoOutput("Y")
      .Attr("file_path", "all")
      .AllowFiles(directory.path())
      .Run(KernelMode::kAuto, false);
  EXPECT_EQ(ReadFile(directory.File("all")), Bytes(kSmall) + Bytes(ids));
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
  try {
    VerifyOrThrow(program, DefaultOps());
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    ExpectConstraint(e.message(), "save_combine.C3");
  }
}

TEST(Load, GivesTheDeclaredTensor) {
  TemporaryDirectory directory;
  Tensor with_lod = kSmall.Clone();
  with_lod.lod() = {{0, 1, 2}};
  WriteFileAtomic(directory.File("w"), Bytes(with_lod));
  VarValues env = Load(directory, "w").Out("w", DType::kFloat32, {2, 2}).Run();
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("w")), kSmall));
  EXPECT_EQ(std::get<Tensor>(env.at("w")).lod(), with_lod.lod());
  // Floating-point types are converted.
  env = Load(directory, "w").Out("w", DType::kFloat64, {2, 2}).Run();
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("w")), kSmall.Cast(DType::kFloat64)));
  env = Load(directory, "w").Attr("load_as_fp16", true).Out("w", DType::kFloat16, {2, 2}).Run();
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("w")), kSmall.Cast(DType::kFloat16)));
}

TEST(Load, GivesSequences) {
  TemporaryDirectory directory;
  Tensor tensor = kSmall.Clone();
  tensor.lod() = {{0, 1, 2}};
  WriteFileAtomic(directory.File("w"), Bytes(tensor));
  for (bool persistable : {true, false}) {
    ProgramDesc program;
    VarDesc& out = program.Root().Var("out");
    out.SetShape({2, 2});
    out.SetPersistable(persistable);
    program.Root().AppendOp("load", {}, {{"Out", {"out"}}}, {{"file_path", std::string("w")}});
    Scope scope;
    const Executor executor({.allow_files = directory.path()});
    const std::vector<Tensor> fetched = executor.Run(program, scope, {}, {"out"});
    EXPECT_EQ(fetched[0].lod(), tensor.lod());
    if (persistable) {
      EXPECT_EQ(scope.Get("out").lod(), tensor.lod());
    }
  }
}

TEST(Load, OtherShapesTypesAndFilesAreErrors) {
  TemporaryDirectory directory;
  std::string path = directory.File("w");
  WriteFileAtomic(path, Bytes(kSmall));
  EXPECT_NE(Load(directory, "w")
                .Out("w", DType::kFloat32, {4})
                .Error()
                .find("declared type is float32[4]"),
            std::string::npos);
  EXPECT_NE(Load(directory, "w").Out("w", DType::kInt64, {2, 2}).Error(), "");
  EXPECT_NE(Load(directory, "wx").Out("w", DType::kFloat32, {2, 2}).Error().find("wx"),
            std::string::npos);
  WriteFileAtomic(path, Bytes(kSmall) + "?");
  EXPECT_NE(Load(directory, "w").Out("w", DType::kFloat32, {2, 2}).Error().find("left over"),
            std::string::npos);
  WriteFileAtomic(path, "not a tensor at all, surely");
  EXPECT_NE(Load(directory, "w").Out("w", DType::kFloat32, {2, 2}).Error(), "");
  // Nor is a file read that is far too large.
  std::filesystem::resize_file(path, uint64_t{1} << 40);
  EXPECT_NE(Load(directory, "w").Out("w", DType::kFloat32, {2, 2}).Error().find("larger than"),
            std::string::npos);
}

TEST(Load, PartOfAFile) {
  TemporaryDirectory directory;
  std::string path = directory.File("w");
  WriteFileAtomic(path, Bytes(Tensor::Of<float>({6}, {0, 1, 2, 3, 4, 5})));
  auto part = [&](int64_t seek) {
    return std::move(Load(directory, "w")
                         .Attr("seek", seek)
                         .Attr("shape", std::vector<int64_t>{1, 2})
                         .Out("w", DType::kFloat32, {1, 2}));
  };
  EXPECT_TRUE(BitEqual(std::get<Tensor>(part(3).Run().at("w")), Tensor::Of<float>({1, 2}, {3, 4})));
  EXPECT_NE(part(5).Error().find("from 5 on"), std::string::npos);
  EXPECT_NE(part(int64_t{1} << 62).Error(), "");
}

TEST(Load, C1_PathMustNameAFile) {
  const TemporaryDirectory here;
  ExpectConstraint(Load(here, "-").Out("w", DType::kFloat32, {1}).Error(), "load.C1");
  Loading combine("load_combine", here.path());
  combine.Attr("file_path", std::string()).Out("w", DType::kFloat32, {1});
  ExpectConstraint(combine.Error(), "load_combine.C1");
}

TEST(Load, C2_ShapeMustBeKnown) {
  const TemporaryDirectory here;
  ExpectConstraint(Load(here, "x").Out("w", DType::kFloat32, {-1, 2}).Error(), "load.C2");
  Loading combine("load_combine", here.path());
  combine.Attr("file_path", std::string("x")).Out("w", DType::kFloat32, {-1});
  ExpectConstraint(combine.Error(), "load_combine.C2");
}

TEST(Load, C3_SeekNeedsShape) {
  const TemporaryDirectory here;
  ExpectConstraint(Load(here, "x").Attr("seek", int64_t{0}).Out("w", DType::kFloat32, {1}).Error(),
                   "load.C3");
}

TEST(Load, C4_ShapeIsThatOfOut) {
  const TemporaryDirectory here;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2}, std::vector<int64_t>(12, 1), std::vector<int64_t>{-1}}) {
    ExpectConstraint(Load(here, "x")
                         .Attr("seek", int64_t{0})
                         .Attr("shape", shape)
                         .Out("w", DType::kFloat32, {1})
                         .Error(),
                     "load.C4");
  }
}

TEST(LoadCombine, InTheOrderOfTheFile) {
  TemporaryDirectory directory;
  const std::string path = "all";
  Tensor ids = Tensor::Of<int64_t>({3}, {1, 2, 3});
  std::string bytes = Bytes(kSmall) + Bytes(ids);
  WriteFileAtomic(directory.File("all"), bytes);
  for (bool memory : {false, true}) {
    VarValues env = Loading("load_combine", memory ? "" : directory.path())
                        .Attr("file_path", memory ? bytes : path)
                        .Attr("model_from_memory", memory)
                        .Out("a", DType::kFloat32, {2, 2})
                        .Out("b", DType::kInt64, {3})
                        .Run();
    EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("a")), kSmall));
    EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("b")), ids));
  }
  Loading partial("load_combine", directory.path());
  partial.Attr("file_path", path).Out("a", DType::kFloat32, {2, 2});
  EXPECT_NE(partial.Error().find("left over"), std::string::npos);
  Loading more("load_combine", directory.path());
  more.Attr("file_path", path)
      .Out("a", DType::kFloat32, {2, 2})
      .Out("b", DType::kInt64, {3})
      .Out("c", DType::kInt64, {3});
  EXPECT_NE(more.Error(), "");
}

TEST(LoadCombine, C3_DenseOnly) {
  Loading loading("load_combine", "");
  loading.Attr("file_path", std::string("x")).Out("w", DType::kFloat32, {1});
  loading.Var("w").SetType(VarType::kSelectedRows);
  ExpectConstraint(loading.Error(), "load_combine.C3");
}
}  // namespace coracle::save_load_test
