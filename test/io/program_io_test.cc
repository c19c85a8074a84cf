#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/test/io/sample_program.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <random>

namespace coracle::program_io_test {

namespace fs = std::filesystem;

// The bytes after protobuf itself has read and written them.
std::string ThroughProtobuf(const std::string& bytes) {
  proto::ProgramDesc message;
  EXPECT_TRUE(message.ParsePartialFromString(bytes));
  return message.SerializePartialAsString();
}

std::string ErrorOf(const std::string& bytes) {
  try {
    ParseProgram(bytes, "m.pdmodel");
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

std::string TextErrorOf(const std::string& text) {
  try {
    ParseProgramText(text, "m.pbtxt");
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

class CapturedLog {
 public:
  CapturedLog() {
    previous_ = SetLogSink([this](MessageLevel, const std::string& line) { text_ += line + "\n"; });
  }
  ~CapturedLog() { SetLogSink(previous_); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  LogSink previous_;
};

TEST(ProgramIo, BinaryRoundTripOfEverything) {
  std::string bytes = proto::SampleMessage().SerializeAsString();
  EXPECT_EQ(SerializeProgram(ParseProgram(bytes)), bytes);
}

TEST(ProgramIo, ValuesAreRead) {
  ProgramDesc program = ParseProgram(proto::SampleMessage().SerializeAsString());
  ASSERT_EQ(program.NumBlocks(), 2);
  EXPECT_EQ(program.version, 2006000);
  EXPECT_FALSE(program.version_in_legacy_field);
  ASSERT_TRUE(program.op_versions().has_value());
  EXPECT_EQ(program.op_versions()->front(), std::make_pair(std::string("clip"), 1));
  EXPECT_EQ(program.random_seed, 90210u);
  const BlockDesc& root = program.Root();
  const VarDesc& w = *root.FindVar("w");
  EXPECT_EQ(w.dtype(), DType::kBFloat16);
  EXPECT_EQ(w.shape(), Shape({-1, 1000}));
  EXPECT_EQ(w.lod_level(), 2);
  EXPECT_TRUE(w.persistable() && w.is_parameter() && w.stop_gradient());
  EXPECT_EQ(FileFields::NeedCheckFeed(w), std::optional<bool>(false));
  EXPECT_FALSE(w.training().trainable);
  EXPECT_EQ(w.training().learning_rate, 0.25);
  EXPECT_EQ(w.training().initializer->Get<float>("low", 0), -1);
  const auto* clip = dynamic_cast<const ErrorClipByNorm*>(w.error_clip().get());
  ASSERT_NE(clip, nullptr);
  EXPECT_EQ(clip->max_norm(), 3);
  EXPECT_EQ(w.training().creation_site, "net.pbtxt:3:4");
  EXPECT_EQ(root.FindVar("rows")->type(), VarType::kSelectedRows);
  EXPECT_EQ(root.FindVar("array")->dtype(), DType::kInt32);
  const OpDesc& op = root.op(0);
  EXPECT_EQ(op.Input("X"), std::vector<std::string>{"x"});
  EXPECT_EQ(op.Output("Out").at(1), "@EMPTY@");
  EXPECT_TRUE(FileFields::IsTarget(op).has_value());
  EXPECT_EQ(op.GetAttr<int32_t>("int", 0), -7);
  EXPECT_EQ(op.GetAttr<float>("float", 0), 0.1f);
  EXPECT_EQ(op.GetAttr<std::string>("string", ""), std::string("a\0b\xff\n", 5));
  EXPECT_EQ(op.GetAttr<std::vector<int32_t>>("ints", {}), (std::vector<int32_t>{-1, 300}));
  EXPECT_EQ(op.GetAttr<std::vector<float>>("floats", {}), (std::vector<float>{1, -2.5f}));
  EXPECT_EQ(op.GetAttr<std::vector<std::string>>("strings", {}).at(1), "two");
  EXPECT_TRUE(op.GetAttr<bool>("boolean", false));
  EXPECT_EQ(op.GetAttr<std::vector<bool>>("booleans", {}), (std::vector<bool>{true, false}));
  EXPECT_EQ(std::get<BlockRef>(*op.FindAttr("block")).idx, 1);
  EXPECT_EQ(op.GetAttr<int64_t>("long", 0), int64_t{1} << 40);
  EXPECT_EQ(op.GetAttr<std::vector<int64_t>>("longs", {}).at(0), -(int64_t{1} << 50));
  EXPECT_EQ(op.GetAttr<std::vector<double>>("float64s", {}).at(0), 1e300);
  EXPECT_EQ(std::get<VarRef>(*op.FindAttr("var")).name, "x");
  EXPECT_EQ(op.GetAttr<double>("float64", 0), 0.1);
  const auto& scalar = std::get<Scalar>(*op.FindAttr("scalar"));
  EXPECT_EQ(std::get<Complex>(scalar.value), (Complex{1.5, -2}));
  EXPECT_EQ(std::get<int64_t>(std::get<std::vector<Scalar>>(*op.FindAttr("scalars"))[1].value), -3);
  EXPECT_TRUE(op.GetAttr<std::vector<int64_t>>("empty", {1}).empty());
  EXPECT_EQ(FileFields::ForwardBlock(program.Block(1)), std::optional<int32_t>(-1));
  EXPECT_EQ(FileFields::ForwardBlock(root), std::nullopt);
}

// Old exporters multiplied unknown dims: -1 times 8 channels became -8.
TEST(ProgramIo, DimsBelowMinusOneAreUnknown) {
  ProgramDesc program;
  program.Root().Var("x").SetShape({-8, 3});
  program.Root().Var("y").SetShape({4, -120});
  program.Root().Var("z").SetShape({-1, 2});
  const std::string bytes = SerializeProgram(program);
  std::string log;
  ProgramDesc read;
  {
    const CapturedLog captured;
    read = ParseProgram(bytes, "old.pdmodel");
    log = captured.text();
  }
  EXPECT_EQ(read.Root().FindVar("x")->shape(), (Shape{-1, 3}));
  EXPECT_EQ(read.Root().FindVar("y")->shape(), (Shape{4, -1}));
  EXPECT_EQ(log, "old.pdmodel: dims below -1 count as unknown: those of 'x' and 1 more\n");
  EXPECT_EQ(SerializeProgram(read), bytes);
}

TEST(ProgramIo, LegacyVersionKeepsItsPlace) {
  proto::ProgramDesc message = proto::SampleMessage();
  message.clear_version();
  message.mutable_legacy_version()->set_version(0);
  ProgramDesc program = ParseProgram(message.SerializeAsString());
  EXPECT_TRUE(program.version_in_legacy_field);
  EXPECT_EQ(program.version, 0);
  EXPECT_EQ(SerializeProgram(program), message.SerializeAsString());
  message.mutable_version();  // present and empty, with the legacy one beside it
  std::string bytes = message.SerializeAsString();
  std::string again = SerializeProgram(ParseProgram(bytes));
  EXPECT_EQ(ThroughProtobuf(again), bytes);
}

TEST(ProgramIo, UnknownFieldsAreKeptEverywhere) {
  proto::ProgramDesc message = proto::SampleMessage();
  auto add = [](auto* part) {
    part->GetReflection()->MutableUnknownFields(part)->AddLengthDelimited(900, "new");
  };
  add(&message);
  add(message.mutable_blocks(0));
  add(message.mutable_blocks(0)->mutable_vars(1));
  add(message.mutable_blocks(0)->mutable_vars(0)->mutable_type());
  add(message.mutable_blocks(0)->mutable_ops(0));
  add(message.mutable_blocks(0)->mutable_ops(0)->mutable_attrs(0));
  message.mutable_blocks(0)
      ->GetReflection()
      ->MutableUnknownFields(message.mutable_blocks(0))
      ->AddGroup(901)
      ->AddVarint(1, 2);
  std::string bytes = message.SerializeAsString();
  ProgramDesc program = ParseProgram(bytes);
  EXPECT_EQ(ThroughProtobuf(SerializeProgram(program)), bytes);
  EXPECT_EQ(TypeOf(*program.Root().op(0).FindAttr("int")), AttrType::kRaw);
}

// An attr of a kind that does not exist yet: its bytes stay as they are, field by field.
TEST(ProgramIo, AttrOfAnUnknownKindIsKept) {
  std::string attr = std::string(
      "\x0a\x01"
      "k"
      "\x10\x63\x18\x05",
      7);  // name k, type 99, i 5
  std::string op = std::string(
                       "\x1a\x01"
                       "t"
                       "\x22",
                       4) +
                   static_cast<char>(attr.size()) + attr;
  std::string block = std::string("\x08\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x22", 14) +
                      static_cast<char>(op.size()) + op;
  std::string bytes = std::string("\x0a") + static_cast<char>(block.size()) + block;
  ProgramDesc program = ParseProgram(bytes);
  EXPECT_EQ(program.Root().op(0).attrs()[0].name, "k");
  EXPECT_EQ(SerializeProgram(program), bytes);
  CapturedLog log;
  std::string text = ProgramToText(program);
  EXPECT_NE(log.text().find("1 attrs of unknown kinds"), std::string::npos) << log.text();
  EXPECT_EQ(ParseProgramText(text).Root().op(0).attrs().size(), 0u);
}

TEST(ProgramIo, UnusualPayloadsAreKept) {
  proto::ProgramDesc message = proto::SampleMessage();
  auto& op = *message.mutable_blocks(1)->mutable_ops(0);
  AddAttr(op, "none", proto::INT);
  auto& both = AddAttr(op, "both", proto::INT);
  both.set_i(1);
  both.set_f(2);
  AddAttr(op, "other", proto::STRING).set_l(5);
  auto* scalar = AddAttr(op, "scalar", proto::SCALAR).mutable_scalar();
  scalar->set_type(proto::Scalar::LONG);
  std::string bytes = message.SerializeAsString();
  ProgramDesc program = ParseProgram(bytes);
  for (const NamedAttr& attr : program.Block(1).op(0).attrs())
    EXPECT_EQ(TypeOf(attr.value), AttrType::kRaw) << attr.name;
  EXPECT_EQ(SerializeProgram(program), bytes);
}

TEST(ProgramIo, PackedListsAreRead) {
  // attr "a" of type INTS with field 6 packed: 1, 300, -1
  std::string packed = std::string("\x01\xac\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13);
  std::string attr = std::string(
                         "\x0a\x01"
                         "a"
                         "\x10\x03\x32\x0d",
                         7) +
                     packed;
  std::string op = std::string(
                       "\x1a\x01"
                       "t"
                       "\x22",
                       4) +
                   static_cast<char>(attr.size()) + attr;
  std::string block = std::string("\x08\x00\x10\x00\x22", 5) + static_cast<char>(op.size()) + op;
  std::string bytes = std::string("\x0a") + static_cast<char>(block.size()) + block;
  EXPECT_EQ(ParseProgram(bytes).Root().op(0).GetAttr<std::vector<int32_t>>("a", {}),
            (std::vector<int32_t>{1, 300, -1}));
}

TEST(ProgramIo, EditedVarsAreWrittenAsEdited) {
  ProgramDesc program = ParseProgram(proto::SampleMessage().SerializeAsString());
  program.Root().FindVar("bare")->SetShape({2, 3});
  program.Root().FindVar("odd")->SetType(VarType::kFetchList);
  proto::ProgramDesc message = ToProto(program);
  for (const auto& var : message.blocks(0).vars()) {
    if (var.name() == "bare") {
      EXPECT_EQ(var.type().lod_tensor().tensor().dims(1), 3);
    }
    if (var.name() == "odd") {
      EXPECT_EQ(var.type().type(), proto::VarType::FETCH_LIST);
      EXPECT_FALSE(var.type().has_lod_tensor());
    }
  }
}

TEST(ProgramIo, ProtoMessages) {
  proto::ProgramDesc message = proto::SampleMessage();
  EXPECT_EQ(ToProto(FromProto(message)).SerializeAsString(), message.SerializeAsString());
  message.mutable_blocks(0)->clear_parent_idx();
  EXPECT_THROW(FromProto(message), Error);
}

// Files keep no LoD level of selected rows.
TEST(ProgramIo, SelectedRowsDifferInNoLoDLevel) {
  ProgramDesc program;
  VarDesc& var = program.Root().Var("rows");
  var.SetType(VarType::kSelectedRows);
  var.SetShape({4, 1});
  var.SetLoDLevel(1);
  EXPECT_TRUE(ParseProgram(SerializeProgram(program)) == program);
  ProgramDesc other = program;
  other.Root().Var("rows").SetShape({5, 1});
  EXPECT_FALSE(other == program);
}

TEST(ProgramIo, TextRoundTrip) {
  ProgramDesc program = ParseProgram(proto::SampleMessage().SerializeAsString());
  CapturedLog log;
  std::string text = ProgramToText(program);
  EXPECT_EQ(log.text(), "");
  EXPECT_EQ(ParseProgramText(text), program);
  EXPECT_NE(text.find("[coracle.proto.training]"), std::string::npos);
  EXPECT_EQ(SerializeProgram(ParseProgramText(text)), proto::SampleMessage().SerializeAsString());
}

TEST(ProgramIo, TextWarnsOfWhatItDrops) {
  ProgramDesc program = ParseProgram(proto::SampleMessage().SerializeAsString());
  FileFields::SetUnknown(program, std::string("\xa2\x38\x03new", 6));
  program.Root().FindVar("scopes")->SetType(static_cast<VarType>(77));
  CapturedLog log;
  ProgramDesc again = ParseProgramText(ProgramToText(program));
  EXPECT_NE(log.text().find("bytes of unknown fields"), std::string::npos) << log.text();
  EXPECT_NE(log.text().find("1 unknown types of vars"), std::string::npos) << log.text();
  EXPECT_EQ(again.Root().FindVar("scopes")->type(), VarType::kRaw);
}

TEST(ProgramIo, TextErrorsSayWhereAndWhatWasMeant) {
  EXPECT_EQ(TextErrorOf("blocks {\n  idx: 0\n  parent_indx: -1\n}"),
            "m.pbtxt:3:14: parent_indx: no such field in BlockDesc; did you mean parent_idx?");
  std::string error =
      TextErrorOf("blocks { idx: 0 parent_idx: -1\n vars { name: 'x' type { type: LOD_TENSR } } }");
  EXPECT_EQ(error.substr(0, 10), "m.pbtxt:2:") << error;
  EXPECT_NE(error.find("did you mean LOD_TENSOR?"), std::string::npos) << error;
  EXPECT_NE(TextErrorOf("blocks {").find("m.pbtxt:1:"), std::string::npos);
  EXPECT_NE(TextErrorOf("blocks { idx: 0 parent_idx: -1 ops { } }").find("blocks[0].ops[0].type"),
            std::string::npos);
  EXPECT_NE(TextErrorOf("").find("contains no block"), std::string::npos);
  EXPECT_NE(TextErrorOf("blocks { idx: 99999999999 }"), "");
}

TEST(ProgramIo, TextAttrWithoutValueIsZero) {
  ProgramDesc program = ParseProgramText(
      "# comment\nblocks { idx: 0 parent_idx: -1 ops { type: 'relu' attrs { name: 'a' type: INT } "
      "} }");
  EXPECT_EQ(program.Root().op(0).GetAttr<int32_t>("a", 9), 0);
}

TEST(ProgramIo, TextNestingIsLimited) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "blocks { ";
  EXPECT_NE(TextErrorOf(text), "");
}

TEST(ProgramIo, BinaryErrorsAreOneClearLine) {
  EXPECT_NE(ErrorOf("").find("m.pdmodel: contains no block"), std::string::npos);
  EXPECT_NE(ErrorOf("\x89PNG\r\n").find("m.pdmodel: damaged at byte"), std::string::npos);
  EXPECT_NE(ErrorOf("\x0a\xff\xff\xff\xff\x07").find("2147483647 bytes where 0 are left"),
            std::string::npos);
  EXPECT_NE(ErrorOf(std::string("\x0a\x04\x08\x05\x10\x00", 6)).find("its index is 5"),
            std::string::npos);
  EXPECT_NE(ErrorOf(std::string(100, '\x0b')).find("nested too deeply"), std::string::npos);
}

TEST(ProgramIo, HostileDescriptionsAreErrors) {
  proto::ProgramDesc message = proto::SampleMessage();
  auto* tensor = message.mutable_blocks(0)
                     ->mutable_vars(0)
                     ->mutable_type()
                     ->mutable_lod_tensor()
                     ->mutable_tensor();
  for (int i = 0; i < 10; ++i) tensor->add_dims(int64_t{1} << 62);
  EXPECT_NE(ErrorOf(message.SerializeAsString()).find("var 'x': has rank 12"), std::string::npos)
      << ErrorOf(message.SerializeAsString());
  message = proto::SampleMessage();
  message.mutable_blocks(0)->mutable_vars(1)->set_name("x");
  EXPECT_NE(ErrorOf(message.SerializeAsString()).find("declares the var 'x' twice"),
            std::string::npos);
  message = proto::SampleMessage();
  message.mutable_blocks(0)
      ->mutable_vars(1)
      ->MutableExtension(proto::training)
      ->mutable_error_clip()
      ->mutable_attrs(0)
      ->set_float64(-1);
  EXPECT_NE(ErrorOf(message.SerializeAsString()).find("max_norm must be positive"),
            std::string::npos);
}

// Thousands of damaged copies: each parses (and can be written and read again) or gives an Error.
void TryProgram(const std::string& bytes) {
  try {
    std::string again = SerializeProgram(ParseProgram(bytes));
    EXPECT_TRUE(SerializeProgram(ParseProgram(again)) == again);
  } catch (const Error& e) {
    EXPECT_NE(e.message(), "");
  }
}

TEST(ProgramIo, MutationsNeverCrash) {
  const std::string good = proto::SampleMessage().SerializeAsString();
  std::mt19937 random(20240521);
  for (size_t n = 0; n < good.size(); ++n) TryProgram(good.substr(0, n));
  for (int i = 0; i < 6000; ++i) {
    std::string bad = good;
    int flips = 1 + static_cast<int>(random() % 4);
    for (int k = 0; k < flips; ++k)
      bad[random() % bad.size()] ^= static_cast<char>(1u << (random() % 8));
    if (i % 3 == 0) bad.erase(random() % bad.size(), 1 + random() % 20);
    if (i % 5 == 0) bad.insert(random() % bad.size(), bad.substr(random() % bad.size(), 30));
    TryProgram(bad);
  }
}

TEST(ProgramIo, LargeProgramsRoundTrip) {
  proto::ProgramDesc message = proto::SampleMessage();
  auto* root = message.mutable_blocks(0);
  for (int i = 0; i < 100000; ++i) {
    std::string name = "conv2d_" + std::to_string(i) + ".tmp_0";
    auto& var = proto::AddVar(*root, name, proto::VarType::LOD_TENSOR);
    auto* tensor = var.mutable_type()->mutable_lod_tensor();
    proto::SetTensorDesc(tensor->mutable_tensor(), proto::VarType::FP32);
    tensor->set_lod_level(0);
    auto* op = root->add_ops();
    op->set_type("elementwise_add");
    for (const char* slot : {"X", "Y"}) {
      auto* input = op->add_inputs();
      input->set_parameter(slot);
      input->add_arguments(name);
    }
    *op->add_outputs() = op->inputs(0);
    proto::AddAttr(*op, "op_role", proto::INT).set_i(0);
    proto::AddAttr(*op, "axis", proto::INT).set_i(-1);
    proto::AddAttr(*op, "op_namescope", proto::STRING).set_s("/");
    proto::AddAttr(*op, "op_role_var", proto::STRINGS);
  }
  const std::string bytes = message.SerializeAsString();
  EXPECT_GT(bytes.size(), size_t{18} << 20);
  auto start = std::chrono::steady_clock::now();
  auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  ProgramDesc program = ParseProgram(bytes);
  double read = seconds();
  std::string again = SerializeProgram(program);
  double written = seconds() - read;
  EXPECT_TRUE(again == bytes);
  std::printf("%.1f MB: read in %.3f s, written in %.3f s\n",
              static_cast<double>(bytes.size()) * 1e-6, read, written);
}

TEST(ProgramIo, TextMutationsNeverCrash) {
  const std::string good = ProgramToText(ParseProgram(proto::SampleMessage().SerializeAsString()));
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good;
    bad[random() % bad.size()] = static_cast<char>(random());
    if (i % 2) bad.erase(random() % bad.size(), 1 + random() % 40);
    try {
      ParseProgramText(bad);
    } catch (const Error& e) {
      EXPECT_NE(e.message(), "");
    }
  }
}

TEST(ProgramIo, TellsTextFromBinary) {
  EXPECT_TRUE(LooksLikeText("# a model\nblocks {}"));
  EXPECT_FALSE(LooksLikeText(proto::SampleMessage().SerializeAsString()));
  EXPECT_FALSE(LooksLikeText(""));
}

TEST(ProgramIo, Files) {
  TemporaryDirectory directory;
  ProgramDesc program = ParseProgram(proto::SampleMessage().SerializeAsString());
  for (const char* name : {"a.pdmodel", "b.pbtxt", "deep/er/c"}) {
    WriteProgram(program, directory.File(name));
    EXPECT_EQ(ReadProgram(directory.File(name)), program) << name;
  }
  EXPECT_TRUE(LooksLikeText(ReadFile(directory.File("b.pbtxt"))));
  WriteFileAtomic(directory.File("text"), ReadFile(directory.File("b.pbtxt")));
  EXPECT_EQ(ReadProgram(directory.File("text")), program);
  EXPECT_THROW(ReadProgram(directory.File("absent")), Error);
  for (const char* name : {"m.onnx", "m.json", "m.pbtxt.gz", "m.PB"}) {
    EXPECT_THROW(WriteProgram(program, directory.File(name)), Error) << name;
    EXPECT_FALSE(FileExists(directory.File(name))) << name;
  }
}

class NamelessClip : public BaseErrorClipAttr {
 public:
  void AppendClipOp(BlockDesc&, const std::string&) const override {}
};

TEST(ProgramIo, UnregisteredClipsCannotBeSaved) {
  ProgramDesc program;
  program.Root().Var("x").SetErrorClip(NamelessClip());
  EXPECT_THROW(SerializeProgram(program), Error);
}

TEST(ProgramIo, ClipsOfAnotherProcessAreKept) {
  proto::ProgramDesc message = proto::SampleMessage();
  message.mutable_blocks(0)
      ->mutable_vars(1)
      ->MutableExtension(proto::training)
      ->mutable_error_clip()
      ->set_kind("somebody_elses");
  std::string bytes = message.SerializeAsString();
  EXPECT_EQ(SerializeProgram(ParseProgram(bytes)), bytes);
}

// y = x * w with running statistics `s`: a file that says nothing of parameters.
std::string OldFile() {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "w", "s", "y"}) root.Var(name).SetShape({1});
  for (const char* name : {"w", "s"}) root.FindVar(name)->SetPersistable(true);
  root.AppendOp("elementwise_mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  root.AppendOp("average", {{"X", {"y"}}, {"S", {"s"}}}, {{"Out", {"s"}}});
  program.InferParameters();  // as whoever reads it does: nothing is left to say
  return SerializeProgram(program);
}

using Names = std::vector<std::string>;

ProgramDesc Reread(const ProgramDesc& program) { return ParseProgram(SerializeProgram(program)); }

TEST(ProgramIo, ParametersOfAnOldFileStayWhatTheyAre) {
  const std::string bytes = OldFile();
  ProgramDesc program = ParseProgram(bytes);
  EXPECT_EQ(program.Parameters(), Names{"w"});
  EXPECT_EQ(SerializeProgram(program), bytes);
  EXPECT_EQ(Reread(program), program);
  EXPECT_EQ(ParseProgramText(ProgramToText(program)).Parameters(), Names{"w"});
  EXPECT_EQ(FromProto(ToProto(program)).Parameters(), Names{"w"});

  program.Root().Var("head").SetShape({1});
  program.Root().FindVar("head")->SetPersistable(true);
  program.Root().FindVar("head")->SetIsParameter(true);
  program.Root().AppendOp("elementwise_mul", {{"X", {"y"}}, {"Y", {"head"}}}, {{"Out", {"z"}}});
  EXPECT_EQ(program.Parameters(), (Names{"w", "head"}));
  EXPECT_EQ(program.CloneForTest().Parameters(), (Names{"w", "head"}));
  EXPECT_EQ(Reread(program).Parameters(), (Names{"w", "head"}));
  EXPECT_EQ(Reread(Reread(program)).Parameters(), (Names{"w", "head"}));
  EXPECT_EQ(Reread(Reread(program)), Reread(program));
  EXPECT_EQ(ParseProgramText(ProgramToText(program)).Parameters(), (Names{"w", "head"}));
  program.Prune({"y"});
  EXPECT_EQ(program.Parameters(), Names{"w"});
  EXPECT_EQ(Reread(program).Parameters(), Names{"w"});
}

// A reader of the saved file would conclude something else than the program holds, so the file
// says it.
TEST(ProgramIo, ParametersAreSaidWhereTheyCannotBeInferred) {
  ProgramDesc written = ParseProgram(OldFile());
  written.Root().AppendOp("assign", {{"X", {"y"}}}, {{"Out", {"w"}}});
  EXPECT_EQ(Reread(written).Parameters(), Names{"w"});
  ProgramDesc unwritten = ParseProgram(OldFile());
  unwritten.Root().RemoveOp(1);
  unwritten.Root().AppendOp("scale", {{"X", {"s"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(Reread(unwritten).Parameters(), Names{"w"});
  ProgramDesc none = ParseProgram(OldFile());
  none.Root().FindVar("w")->SetIsParameter(false);
  EXPECT_TRUE(Reread(none).Parameters().empty());
}

TEST(ProgramIo, RealModelsRoundTripByteForByte) {
  std::string data = TestDataDirectory();
  if (data.empty() || !FileExists(data + "/paddle")) GTEST_SKIP() << "no models in CORACLE_DATA";
  int models = 0;
  for (const auto& entry : fs::recursive_directory_iterator(data + "/paddle")) {
    if (entry.path().extension() != ".pdmodel") continue;
    ++models;
    std::string bytes = ReadFile(entry.path().string());
    ProgramDesc program = ParseProgram(bytes, entry.path().string());
    EXPECT_TRUE(SerializeProgram(program) == bytes) << entry.path();
    EXPECT_TRUE(ParseProgramText(ProgramToText(program)) == program) << entry.path();
    for (int b = 0; b < program.NumBlocks(); ++b) {
      for (size_t i = 0; i < program.Block(b).NumOps(); ++i) {
        for (const NamedAttr& attr : program.Block(b).op(i).attrs())
          EXPECT_NE(TypeOf(attr.value), AttrType::kRaw) << attr.name;
      }
    }
  }
  EXPECT_GT(models, 0);
}
}  // namespace coracle::program_io_test
