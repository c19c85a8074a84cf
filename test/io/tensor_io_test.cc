#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace coracle::tensor_io_test {

std::string Bytes(const Tensor& tensor) {
  std::string bytes;
  AppendTensor(tensor, &bytes);
  return bytes;
}

Tensor Parse(const std::string& bytes) {
  size_t offset = 0;
  Tensor tensor = ParseTensor(bytes, &offset, "t");
  EXPECT_EQ(offset, bytes.size());
  return tensor;
}

std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

std::string ErrorOf(const std::string& bytes) {
  return ErrorOf([&] { Parse(bytes); });
}

// Version, no LoD, version, a description of 4 bytes (float32, [104]), then the elements.
TEST(TensorIo, BytesAreThoseOfTheFormat) {
  std::string head(
      "\0\0\0\0"
      "\0\0\0\0\0\0\0\0"
      "\0\0\0\0"
      "\4\0\0\0"
      "\x08\x05\x10\x68",
      24);
  Tensor zeros = Tensor::Zeros(DType::kFloat32, {104});
  EXPECT_EQ(Bytes(zeros), head + std::string(416, '\0'));
  EXPECT_TRUE(BitEqual(Parse(head + std::string(416, '\0')), zeros));
  EXPECT_EQ(Bytes(Tensor::Of<float>({1}, {1.f})).size(), 28u);
}

// COMPLEX64 is 23, COMPLEX128 24; an element is its real, then its imaginary part.
TEST(TensorIo, ComplexNumbers) {
  const std::string before("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\4\0\0\0\x08", 21);
  const Tensor one = Tensor::Of<complex64>({1}, {complex64(1, -2)});
  const std::string bytes =
      before + std::string("\x17\x10\x01", 3) + std::string("\0\0\x80\x3f\0\0\0\xc0", 8);
  EXPECT_EQ(Bytes(one), bytes);
  EXPECT_TRUE(BitEqual(Parse(bytes), one));
  const Tensor wide = one.Cast(DType::kComplex128);
  EXPECT_EQ(Bytes(wide), before + std::string("\x18\x10\x01", 3) +
                             std::string("\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\xc0", 16));
}

TEST(TensorIo, EveryTypeAndLoD) {
  for (DType dtype : {DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32,
                      DType::kInt64, DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                      DType::kFloat64, DType::kComplex64, DType::kComplex128}) {
    Tensor tensor = Tensor::Of<float>({3, 2}, {0, 1, 0, 1, 1, 0}).Cast(dtype);
    tensor.lod() = {{0, 1, 2}, {0, 1, 3}};
    Tensor again = Parse(Bytes(tensor));
    EXPECT_TRUE(BitEqual(again, tensor));
    EXPECT_EQ(again.lod(), tensor.lod());
  }
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{2, 0, 3}}) {
    Tensor tensor = Tensor::Zeros(DType::kFloat64, shape);
    EXPECT_TRUE(BitEqual(Parse(Bytes(tensor)), tensor));
  }
}

TEST(TensorIo, ABatchWithoutSequences) {
  Tensor tensor = Tensor::Zeros(DType::kFloat32, {0, 2});
  tensor.lod() = {{0}};
  EXPECT_EQ(Parse(Bytes(tensor)).lod(), tensor.lod());
}

TEST(TensorIo, BoolBytesBecomeBools) {
  std::string bytes = Bytes(Tensor::Of<bool>({2}, {false, true}));
  bytes.back() = 77;
  EXPECT_TRUE(BitEqual(Parse(bytes), Tensor::Of<bool>({2}, {false, true})));
}

TEST(TensorIo, DamagedStreamsAreErrors) {
  Tensor tensor = Tensor::Of<float>({3, 2}, {0, 1, 2, 3, 4, 5});
  tensor.lod() = {{0, 1, 3}};
  const std::string good = Bytes(tensor);
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(ErrorOf(good.substr(0, n)), "") << n;
  std::string bad = good;
  bad[0] = 1;
  EXPECT_NE(ErrorOf(bad).find("version 1"), std::string::npos);
  bad = good;
  bad[11] = 0x7f;  // 2^62 levels
  EXPECT_NE(ErrorOf(bad).find("LoD levels"), std::string::npos);
  bad = good;
  bad[20 + 16] = 9;  // the last offset
  EXPECT_NE(ErrorOf(bad).find("ends at 9 where 3"), std::string::npos) << ErrorOf(bad);
  // 2^40 x 2^40 elements, and a negative dimension
  std::string head("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
  std::string huge = head + std::string("\x10\0\0\0\x08\x05", 6) +
                     std::string("\x10\x80\x80\x80\x80\x80\x20", 7) +
                     std::string("\x10\x80\x80\x80\x80\x80\x20", 7);
  EXPECT_NE(ErrorOf(huge), "");
  std::string negative =
      head + std::string("\x0d\0\0\0\x08\x05\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 17);
  EXPECT_NE(ErrorOf(negative).find("dimension of -1"), std::string::npos) << ErrorOf(negative);
  const auto of_type = [&](char type) {
    return head + std::string("\x04\0\0\0\x08", 5) + type + std::string("\x10\x01", 2) +
           std::string(16, '\0');
  };
  EXPECT_NE(ErrorOf(of_type(26)).find("data type 26"), std::string::npos) << ErrorOf(of_type(26));
  EXPECT_NE(ErrorOf(of_type(25)).find("a tensor of strings"), std::string::npos);
}

TEST(TensorIo, MutationsNeverCrash) {
  Tensor tensor = Tensor::Of<float>({3, 2}, {0, 1, 2, 3, 4, 5});
  tensor.lod() = {{0, 1, 2}, {0, 1, 3}};
  SelectedRows rows{{4, 1, 4}, 9, tensor.Clone()};
  std::string dense = Bytes(tensor), sparse;
  AppendSelectedRows(rows, &sparse);
  std::mt19937 random(3);
  for (int i = 0; i < 8000; ++i) {
    std::string bad = i % 2 ? dense : sparse;
    for (int k = 0; k < 2; ++k)
      bad[random() % bad.size()] ^= static_cast<char>(1u << (random() % 8));
    size_t offset = 0;
    ErrorOf([&] {
      if (i % 2)
        ParseTensor(bad, &offset, "t");
      else
        ParseSelectedRows(bad, &offset, "t");
    });
  }
}

TEST(TensorIo, SelectedRowsRoundTrip) {
  SelectedRows rows{{4, 1, 4}, 9, Tensor::Of<double>({3, 2}, {0, 1, 2, 3, 4, 5})};
  std::string bytes;
  AppendSelectedRows(rows, &bytes);
  size_t offset = 0;
  SelectedRows again = ParseSelectedRows(bytes, &offset, "r");
  EXPECT_EQ(offset, bytes.size());
  EXPECT_EQ(again.rows, rows.rows);
  EXPECT_EQ(again.height, 9);
  EXPECT_TRUE(BitEqual(again.value, rows.value));
  rows.rows[0] = 9;  // outside
  bytes.clear();
  AppendSelectedRows(rows, &bytes);
  offset = 0;
  EXPECT_THROW(ParseSelectedRows(bytes, &offset, "r"), Error);
}

// x -> mul by w -> y -> y + b in place -> out; then the loss and its sgd.
ProgramDesc SmallProgram() {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  auto add = [&](const char* name, const Shape& shape, bool persistable) {
    VarDesc& var = root.Var(name);
    var.SetShape(shape);
    var.SetPersistable(persistable);
  };
  add("x", {-1, 2}, false);
  add("w", {2, 3}, true);
  add("B", {3}, true);
  add("a.b", {1}, true);
  add("y", {-1, 3}, false);
  add("out", {-1, 3}, false);
  add("w@GRAD", {2, 3}, false);
  add("lr", {1}, true);
  root.AppendOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  root.AppendOp("elementwise_add", {{"X", {"y"}}, {"Y", {"B"}}}, {{"Out", {"y"}}});
  root.AppendOp("dropout", {{"X", {"y"}}}, {{"Out", {"out"}}}, {{"is_test", false}});
  root.AppendOp("mul_grad", {{"X", {"x"}}}, {{"Y@GRAD", {"w@GRAD"}}},
                {{kOpRoleAttr, int{kBackward}}});
  root.AppendOp("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}, {"LearningRate", {"lr"}}},
                {{"ParamOut", {"w"}}}, {{kOpRoleAttr, int{kOptimize}}});
  return program;
}

Scope SmallScope() {
  Scope scope;
  scope.Set("w", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  scope.Set("B", Tensor::Of<float>({3}, {7, 8, 9}));
  scope.Set("a.b", Tensor::Of<float>({1}, {10}));
  scope.Set("lr", Tensor::Of<float>({1}, {0.1f}));
  return scope;
}

TEST(Parameters, NamesAreSortedByBytesWithoutHolders) {
  ProgramDesc program = SmallProgram();
  VarDesc& feed = program.Root().Var("feed");
  feed.SetType(VarType::kFeedMinibatch);
  feed.SetPersistable(true);
  EXPECT_EQ(PersistableNames(program), (std::vector<std::string>{"B", "a.b", "lr", "w"}));
}

TEST(Parameters, CombinedIsTheStreamsInOrder) {
  TemporaryDirectory directory;
  Scope scope = SmallScope(), loaded;
  ProgramDesc program = SmallProgram();
  std::vector<std::string> names = PersistableNames(program);
  SaveCombined(scope, names, directory.File("p"));
  EXPECT_EQ(ReadFile(directory.File("p")), Bytes(scope.Get("B")) + Bytes(scope.Get("a.b")) +
                                               Bytes(scope.Get("lr")) + Bytes(scope.Get("w")));
  LoadCombined(program, names, directory.File("p"), loaded);
  for (const std::string& name : names)
    EXPECT_TRUE(BitEqual(loaded.Get(name), scope.Get(name))) << name;
}

// Small tensors lie side by side, large ones alone; all go when they are not needed.
TEST(Parameters, LargeFiles) {
  TemporaryDirectory directory;
  Scope scope, loaded;
  ProgramDesc program;
  for (const int64_t n : {1, 1000, 40000, 250000, 700000, 0, 3}) {
    for (const DType dtype : {DType::kFloat32, DType::kBool, DType::kInt64}) {
      Tensor tensor(DType::kInt64, {n});
      for (int64_t i = 0; i < n; ++i) tensor.data<int64_t>()[i] = i % 3 == 0 ? 0 : i + n;
      const std::string name = ToString(dtype) + std::to_string(n);
      VarDesc& var = program.Root().Var(name);
      var.SetDType(dtype);
      var.SetShape({n});
      var.SetPersistable(true);
      scope.Set(name, tensor.Cast(dtype));
    }
  }
  const std::vector<std::string> names = PersistableNames(program);
  SaveCombined(scope, names, directory.File("p"));
  LoadCombined(program, names, directory.File("p"), loaded);
  for (const std::string& name : names) {
    EXPECT_TRUE(BitEqual(loaded.Get(name), scope.Get(name))) << name;
    EXPECT_TRUE(loaded.Erase(name));
  }
}

TEST(Parameters, ShiftedFilesNameTheFirstMisfit) {
  TemporaryDirectory directory;
  Scope scope = SmallScope(), loaded;
  ProgramDesc program = SmallProgram();
  std::string path = directory.File("p");
  auto load = [&] {
    return ErrorOf([&] { LoadCombined(program, PersistableNames(program), path, loaded); });
  };
  SaveCombined(scope, {"B", "lr", "w"}, path);  // a.b is missing: lr fits in its place
  EXPECT_NE(load().find("tensor 3 of 4, 'lr', must have the shape [1], got [2, 3]"),
            std::string::npos)
      << load();
  EXPECT_FALSE(loaded.Has("B"));  // all or nothing
  SaveCombined(scope, {"B", "a.b", "lr"}, path);
  EXPECT_NE(load().find("ends before tensor 4 of 4, 'w'"), std::string::npos) << load();
  SaveCombined(scope, {"B", "a.b", "lr", "w", "lr"}, path);
  EXPECT_NE(load().find("28 bytes are left over"), std::string::npos) << load();
  WriteFileAtomic(path, "\x89PNG and so on");
  EXPECT_NE(load().find(path), std::string::npos);
  WriteFileAtomic(path, "\x80\x02}q\x01");  // what Paddle writes as .pdparams
  EXPECT_NE(load().find("is a pickle of Python"), std::string::npos) << load();
}

TEST(Parameters, SeparateFiles) {
  TemporaryDirectory directory;
  Scope scope = SmallScope(), loaded;
  ProgramDesc program = SmallProgram();
  program.Root().Var("deep/er@1").SetShape({1});
  program.Root().Var("deep/er@1").SetPersistable(true);
  scope.Set("deep/er@1", Tensor::Of<float>({1}, {3}));
  VarDesc& rows = program.Root().Var("rows");
  rows.SetType(VarType::kSelectedRows);
  rows.SetPersistable(true);
  scope.Var("rows") = SelectedRows{{1}, 2, Tensor::Of<float>({1, 1}, {5})};
  std::vector<std::string> names = PersistableNames(program);
  EXPECT_THROW(SaveCombined(scope, names, directory.File("c")), Error);
  SaveSeparate(scope, names, directory.File("p"));
  EXPECT_EQ(ReadFile(directory.File("p/w")), Bytes(scope.Get("w")));
  LoadParameters(program, directory.File("p"), loaded);
  EXPECT_TRUE(BitEqual(loaded.Get("deep/er@1"), scope.Get("deep/er@1")));
  EXPECT_EQ(std::get<SelectedRows>(*loaded.Find("rows")).height, 2);
  WriteFileAtomic(directory.File("p/w"), Bytes(scope.Get("w")) + "x");
  EXPECT_THROW(LoadParameters(program, directory.File("p"), loaded), Error);
  WriteFileAtomic(directory.File("p/w"), Bytes(scope.Get("lr")));
  EXPECT_THROW(LoadParameters(program, directory.File("p"), loaded), Error);
}

TEST(Parameters, NamesCannotLeadOutOfTheDirectory) {
  TemporaryDirectory directory;
  for (const char* name : {"../evil", "/tmp/evil", "a/../../evil", "", "dir/", "./x", ".."}) {
    ProgramDesc program;
    program.Root().Var(name).SetShape({1});
    Scope scope;
    scope.Set(name, Tensor::Of<float>({1}, {3}));
    EXPECT_THROW(SaveSeparate(scope, {name}, directory.File("p")), Error) << name;
    EXPECT_THROW(LoadSeparate(program, {name}, directory.File("p"), scope), Error) << name;
  }
}

TEST(Parameters, MissingValuesAreNamed) {
  TemporaryDirectory directory;
  Scope scope;
  std::string error = ErrorOf([&] { SaveCombined(scope, {"w"}, directory.File("p")); });
  EXPECT_NE(error.find("'w' has no value"), std::string::npos) << error;
  EXPECT_FALSE(FileExists(directory.File("p")));
}

class InferenceModels : public testing::TestWithParam<InferenceLayout> {};

TEST_P(InferenceModels, SaveLoadSave) {
  TemporaryDirectory directory;
  ProgramDesc program = SmallProgram();
  Scope scope = SmallScope();
  std::string path = directory.File("model");
  SaveInferenceModel(path, {"x"}, {"out"}, program, scope, GetParam());
  Scope loaded;
  InferenceModel model = LoadInferenceModel(path, loaded);
  EXPECT_EQ(model.feed_names, std::vector<std::string>{"x"});
  EXPECT_EQ(model.fetch_names, std::vector<std::string>{"out"});
  const BlockDesc& root = model.program.Root();
  std::vector<std::string> types;
  for (size_t i = 0; i < root.NumOps(); ++i) types.push_back(root.op(i).type());
  EXPECT_EQ(types,
            (std::vector<std::string>{"feed", "mul", "elementwise_add", "dropout", "fetch"}));
  EXPECT_TRUE(root.op(3).GetAttr<bool>("is_test", false));
  EXPECT_EQ(loaded.LocalNames(), (std::vector<std::string>{"B", "w"}));
  EXPECT_TRUE(BitEqual(loaded.Get("w"), scope.Get("w")));
  // Once more, from what was loaded: the same files.
  std::string again = directory.File("again");
  SaveInferenceModel(again, model.feed_names, model.fetch_names, model.program, loaded, GetParam());
  Scope third;
  EXPECT_EQ(LoadInferenceModel(again, third).program, model.program);
  EXPECT_EQ(third.LocalNames(), loaded.LocalNames());
}

INSTANTIATE_TEST_SUITE_P(Layouts, InferenceModels,
                         testing::Values(InferenceLayout::kPdmodel, InferenceLayout::kModelCombined,
                                         InferenceLayout::kModelSeparate));

TEST(InferenceModel, FeedColumnsAreInOrder) {
  TemporaryDirectory directory;
  ProgramDesc program;
  for (const char* name : {"a", "b", "c", "s"}) program.Root().Var(name).SetShape({1});
  program.Root().AppendOp("sum", {{"X", {"a", "b", "c"}}}, {{"Out", {"s"}}});
  Scope scope;
  SaveInferenceModel(directory.File("m"), {"b", "c", "a"}, {"s", "a"}, program, scope);
  InferenceModel model = LoadInferenceModel(directory.File("m.pdmodel"), scope);
  EXPECT_EQ(model.feed_names, (std::vector<std::string>{"b", "c", "a"}));
  EXPECT_EQ(model.fetch_names, (std::vector<std::string>{"s", "a"}));
  EXPECT_EQ(model.program.Root().op(0).Output("Out")[0], "a");  // Paddle's order: last first
}

TEST(InferenceModel, ErrorsNameTheVariable) {
  TemporaryDirectory directory;
  ProgramDesc program = SmallProgram();
  Scope scope = SmallScope();
  auto save = [&](std::vector<std::string> feeds, std::vector<std::string> fetches) {
    return ErrorOf(
        [&] { SaveInferenceModel(directory.File("m"), feeds, fetches, program, scope); });
  };
  EXPECT_NE(save({}, {"out"}).find("reads the var 'x'"), std::string::npos) << save({}, {"out"});
  EXPECT_NE(save({"x"}, {"oot"}).find("did you mean out?"), std::string::npos);
  EXPECT_NE(save({"z"}, {"out"}).find("'z' to feed"), std::string::npos);
  EXPECT_NE(save({"x"}, {}), "");
  EXPECT_FALSE(FileExists(directory.File("m.pdmodel")));
  EXPECT_NE(ErrorOf([&] { LoadInferenceModel(directory.File("none"), scope); }).find("no model at"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] { LoadInferenceModel(directory.path(), scope); }).find("neither"),
            std::string::npos);
}

struct RealModel {
  const char* name;
  size_t tensors, floats;
};

class RealModels : public testing::TestWithParam<RealModel> {};

TEST_P(RealModels, ParametersLoad) {
  std::string data = TestDataDirectory();
  std::string path = data + "/paddle/" + GetParam().name;
  if (data.empty() || !FileExists(path)) GTEST_SKIP() << "no models in CORACLE_DATA";
  Scope scope;
  InferenceModel model = LoadInferenceModel(path, scope);
  EXPECT_EQ(model.feed_names.size(), 1u);
  EXPECT_EQ(model.fetch_names.size(), 1u);
  EXPECT_EQ(PersistableNames(model.program).size(), GetParam().tensors);
  EXPECT_EQ(scope.LocalNames().size(), GetParam().tensors);
  size_t floats = 0;
  for (const std::string& name : scope.LocalNames())
    floats += static_cast<size_t>(scope.Get(name).numel());
  EXPECT_EQ(floats, GetParam().floats);

  // Written again: the same bytes.
  TemporaryDirectory directory;
  SaveCombined(scope, PersistableNames(model.program), directory.File("p"));
  std::string original = ReadFile(path + "/inference.pdiparams");
  EXPECT_TRUE(ReadFile(directory.File("p")) == original);

  // Without its first tensor the file is refused with a name.
  size_t first = 0;
  ParseTensor(original, &first, "p");
  WriteFileAtomic(directory.File("p"), std::string_view(original).substr(first));
  std::string error = ErrorOf([&] { LoadParameters(model.program, directory.File("p"), scope); });
  EXPECT_NE(error.find("', must have the "), std::string::npos) << error;

  // Saved as an inference model again: all ops are kept.
  SaveInferenceModel(directory.File("m"), model.feed_names, model.fetch_names, model.program,
                     scope);
  Scope again;
  InferenceModel second = LoadInferenceModel(directory.File("m"), again);
  EXPECT_EQ(second.program.Root().NumOps(), model.program.Root().NumOps());
  EXPECT_EQ(again.LocalNames(), scope.LocalNames());
}

INSTANTIATE_TEST_SUITE_P(Paddle, RealModels,
                         testing::Values(RealModel{"ch_PP-OCRv3_det", 288, 592625},
                                         RealModel{"ch_ppocr_mobile_v2.0_cls", 213, 133628}));
}  // namespace coracle::tensor_io_test
