// The command and files that were made to harm their reader.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/test/sanitizers.h>
#include <coracle/test/tools/cli.h>
#include <sys/stat.h>

namespace coracle::hostile_files_test {

namespace fs = std::filesystem;

class HostileFiles : public Cli {
 protected:
  // A program that makes [3] and saves it at `path`.
  static ProgramDesc Saving(const std::string& path) {
    ProgramDesc program;
    program.Root().Var("x").SetShape({1});
    program.Root().AppendOp("assign_value", {}, {{"Out", {"x"}}},
                            {{"shape", std::vector<int32_t>{1}},
                             {"dtype", static_cast<int32_t>(DType::kFloat32)},
                             {"fp32_values", std::vector<float>{3}}});
    program.Root().AppendOp("save", {{"X", {"x"}}}, {}, {{"file_path", path}});
    return program;
  }
  static ProgramDesc Loading(const std::string& path) {
    ProgramDesc program;
    program.Root().Var("x").SetShape({1});
    program.Root().AppendOp("load", {}, {{"Out", {"x"}}}, {{"file_path", path}});
    return program;
  }
  void Write(const std::string& name, const ProgramDesc& program) {
    WriteProgram(program, Path(name));
  }
};

TEST_F(HostileFiles, ProgramsTouchNoFiles) {
  const std::string victim = Path("home/.ssh/authorized_keys");
  Write("save.pb", Saving(victim));
  Write("load.pb", Loading("model.pbtxt"));
  for (const char* command :
       {"coracle run save.pb", "coracle run save.pb --allow_files=work", "coracle time save.pb",
        "coracle check-grad save.pb --loss=x", "coracle run load.pb --fetch=x"}) {
    Expect("mkdir -p work && " + std::string(command), 1, {"the program names the file"});
    EXPECT_FALSE(fs::exists(victim)) << command;
    EXPECT_FALSE(fs::exists(Path("home"))) << command;
  }
  Expect("coracle check save.pb", 0, {"note: block 0 op 1 (save): reads or writes the file"});
  Expect("coracle dump save.pb", 0, {"files that ops read or write", "op 1 of block 0 (save): "});
}

TEST_F(HostileFiles, AllowedDirectoryIsAWall) {
  fs::create_directories(Path("in/deep"));
  fs::create_directories(Path("out"));
  fs::create_directory_symlink("../out", Path("in/link"));
  fs::create_directory_symlink(".", Path("in/deep/self"));
  WriteFileAtomic(Path("out/victim"), "old");
  fs::create_symlink("../out/victim", Path("in/file_link"));
  for (const std::string& path :
       {Path("in/a"), std::string("/a"), std::string("../out/a"), std::string("deep/../../out/a"),
        std::string("link/a"), std::string("deep/self/a"), std::string("file_link"),
        std::string("deep"), std::string("deep/"), std::string(".."), std::string("a\0b", 3)}) {
    Write("save.pb", Saving(path));
    Expect("coracle run save.pb --allow_files=in", 1, {"coracle: "});
    Write("load.pb", Loading(path));
    Expect("coracle run load.pb --fetch=x --allow_files=in", 1, {"coracle: "});
  }
  EXPECT_EQ(ReadFile(Path("out/victim")), "old");
  EXPECT_FALSE(fs::exists(Path("out/a")));
  Write("save.pb", Saving("new/./dir/a"));
  Expect("coracle run save.pb --allow_files=in", 0, {});
  EXPECT_TRUE(fs::is_regular_file(Path("in/new/dir/a")));
  Write("load.pb", Loading("new/dir/a"));
  Expect("coracle run load.pb --fetch=x --allow_files=in", 0, {"x: float32[1]: 3"});
}

// In a block that is run by another op, or by none.
TEST_F(HostileFiles, SubBlocksTouchNoFilesEither) {
  ProgramDesc program;
  program.Root().Var("c").SetShape({1});
  BlockDesc& inner = program.AppendBlock(program.Root());
  inner.Var("x").SetShape({1});
  inner.AppendOp("load", {}, {{"Out", {"x"}}}, {{"file_path", std::string("model.pbtxt")}});
  Write("block.pb", program);
  Expect("coracle run block.pb", 1, {"load: the program names the file"});
}

TEST_F(HostileFiles, PipesAndDevicesAreNotRead) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  for (const char* name : {"run", "model", "zero", "piped"}) fs::create_directory(Path(name));
  fs::create_symlink("/dev/zero", Path("run/log.jsonl"));
  WriteFileAtomic(Path("model/model.pdmodel"), "");
  fs::create_symlink(Path("pipe"), Path("model/vocabulary.json"));
  fs::create_symlink("/dev/zero", Path("zero/model.pdmodel"));
  fs::create_symlink(Path("pipe"), Path("piped/eval.pdmodel"));
  WriteFileAtomic(Path("zero/vocabulary.json"),
                  R"({"format": "coracle vocabulary", "version": 1, "characters": ["a", "b"]})");
  WriteFileAtomic(Path("job.pbtxt"), "model: \"model.pbtxt\" train { digits { count: 20 } }");
  Expect("coracle build model.pbtxt --out=main.pb", 0, {});
  const std::string pipe = ": it is a pipe, not a regular file";
  const std::string device = ": it is a device, not a regular file";
  for (const auto& [command, why] :
       {std::pair("dump pipe", "'pipe'" + pipe),
        {"dump /dev/zero", "'/dev/zero'" + device},
        {"run main.pb --params=/dev/zero", "'/dev/zero'" + device},
        {"run main.pb --params=pipe", "'pipe'" + pipe},
        {"run main.pb --feed=pipe", "'pipe'" + pipe},
        {"check-grad main.pb --loss=loss --feed=/dev/zero", "'/dev/zero'" + device},
        {"plot run", "'run/log.jsonl'" + device},
        {"plot pipe", "'pipe'" + pipe},
        {"generate model", "'model/vocabulary.json'" + pipe},
        {"generate zero --prompt=a", "'zero/model.pdmodel'" + device},
        {"train pipe", "'pipe'" + pipe},
        {"snapshot pipe", std::string("no snapshot in 'pipe'")},
        {"test piped job.pbtxt", "'piped/eval.pdmodel'" + pipe},
        {"test zero/model.pdmodel job.pbtxt", "'zero/model.pdmodel'" + device},
        {"convert main.pb pipe", std::string("a pipe without a reader")}}) {
    Expect("timeout 20 coracle " + std::string(command), 1, {why});
  }
  // A stream where one is meant.
  Expect("cat main.pb | coracle dump -", 0, {"= mean(X=h)"});
  Expect("coracle convert main.pb /dev/stdout | coracle dump -", 0, {"= mean(X=h)"});
}

TEST_F(HostileFiles, LongNamesAreMessages) {
  WriteFileAtomic(Path("job.pbtxt"), R"(
    model: "model.pbtxt" train { digits { count: 20 } } optimizer { sgd {} } max_iter: 1
    snapshot_interval: 1)");
  const std::string name(5000, 'n');
  for (const std::string command : {"dump NAME",
                                    "check NAME",
                                    "run NAME",
                                    "train NAME",
                                    "plot NAME",
                                    "snapshot NAME",
                                    "generate NAME",
                                    "time NAME",
                                    "summary NAME",
                                    "graph NAME",
                                    "convert model.pbtxt NAME",
                                    "run model.pbtxt --params=NAME",
                                    "run model.pbtxt --feed=NAME",
                                    "run model.pbtxt --allow_files=NAME --fetch=w",
                                    "test model.pbtxt NAME",
                                    "test NAME job.pbtxt",
                                    "train job.pbtxt --out=NAME",
                                    "train job.pbtxt --resume=NAME",
                                    "train job.pbtxt --data_dir=NAME --out=NAME",
                                    "build model.pbtxt --out=NAME",
                                    "--op_library=NAME version"}) {
    std::string line = command;
    for (size_t at; (at = line.find("NAME")) != line.npos;) line.replace(at, 4, name);
    const Result result = Shell("cd " + dir_ + " && coracle " + line);
    EXPECT_EQ(result.code, 1) << command << result.text;
    for (const char* sign : {"filesystem error", "internal", "std::", "basic_"})
      EXPECT_EQ(result.text.find(sign), std::string::npos) << command << result.text;
  }
}

TEST_F(HostileFiles, ExpressionsTakeLittleTimeAndMemory) {
  ProgramDesc program;
  program.Root().Var(std::string(100'000, 'a') + "b");
  Write("long.pb", program);
  const std::string limit = UnderSanitizer() ? "" : "ulimit -v 4000000; ";
  for (const char* pattern : {"(a*)*c", "((a{1,1000}){1,1000})", "a{1,32767}", "(a)\\1", "(a|aa)+c",
                              "(((((((((a*)*)*)*)*)*)*)*)*)*c"}) {
    const Result result =
        Shell(limit + "timeout 20 coracle dump '--vars=" + pattern + "' " + Path("long.pb"));
    EXPECT_TRUE(result.code == 0 || result.code == 2) << pattern << result.code << result.text;
  }
}

// ESC, C1, NUL, bidirectional overrides: none reaches a terminal from any name.
TEST_F(HostileFiles, NamesDoNotReachTheTerminal) {
  const std::string name = std::string(
                               "\033]0;x\007\x9b"
                               "2J\u009b\u202e\u2066") +
                           '\0' + "\r\u200b z";
  ProgramDesc program;
  program.Root().Var(name).SetShape({2});
  program.Root().AppendOp(name, {{name, {name}}}, {{"Out", {name}}}, {{name, name}});
  program.Root().AppendOp("relu", {{"X", {name}}, {name, {name}}}, {{"Out", {name}}},
                          {{name, name}, {"op_callstack", std::vector<std::string>{name}}});
  program.Root().AppendOp("print", {{"In", {name}}}, {}, {{"message", name}});
  Write("names.pb", program);
  ProgramDesc known;
  known.Root().Var(name).SetShape({2});
  known.Root().Var("no").SetShape({1});
  known.Root().Var("no").SetDType(DType::kBool);
  known.Root().AppendOp("fill_constant", {}, {{"Out", {name}}},
                        {{"shape", std::vector<int64_t>{2}}, {"value", 1.f}});
  known.Root().AppendOp("print", {{"In", {name}}}, {}, {{"message", name}});
  known.Root().AppendOp("fill_constant", {}, {{"Out", {"no"}}},
                        {{"shape", std::vector<int64_t>{1}},
                         {"value", 0.f},
                         {"dtype", static_cast<int32_t>(DType::kBool)}});
  known.Root().AppendOp("assert", {{"Cond", {"no"}}, {"Data", {name}}}, {}, {{"message", name}});
  Write("known.pb", known);
  std::string quoted = name;
  std::erase(quoted, '\0');
  const std::string flag = "='" + quoted + "'";
  for (const std::string& command :
       {std::string("check names.pb"), std::string("dump names.pb"), std::string("run names.pb"),
        std::string("summary names.pb"), std::string("run known.pb"), std::string("dump known.pb"),
        std::string("graph names.pb"), "backward known.pb --out=o.pb --loss" + flag,
        "time model.pbtxt --loss" + flag, "run known.pb --fetch" + flag,
        "explain-gradient known.pb --of=no --wrt" + flag, "check-grad known.pb --loss" + flag,
        "dump '" + quoted + "'", "'" + quoted + "'",
        "check names.pb --" + quoted.substr(0, 2) + flag, "plot '" + quoted + "'",
        "dump known.pb --vars" + flag, "dump known.pb --format" + flag}) {
    const Result result = Shell("cd " + dir_ + " && coracle " + command);
    EXPECT_LE(result.code, 2) << command;
    EXPECT_NE(result.code, -1);
    for (const char* hidden : {"\033", "\007",
                               "\x9b"
                               "2J",
                               "\u009b", "\u202e", "\u2066", "\r", "\u200b"})
      EXPECT_EQ(result.text.find(hidden), std::string::npos) << command;
    EXPECT_EQ(result.text.find('\0'), std::string::npos) << command;
  }
}
}  // namespace coracle::hostile_files_test
