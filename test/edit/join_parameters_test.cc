#include <coracle/edit/join_parameters.h>
#include <coracle/framework/base/file.h>
#include <coracle/test/edit/edit_programs.h>
#include <coracle/test/test_data.h>

namespace coracle::join_parameters_test {

using Names = std::vector<std::string>;

// Names whose order by bytes differs from the order of declarations and of directories.
const Names kNames = {"b", "a/x", "a.y", "a0", "B", ".c"};

void Fill(Scope& scope) {
  float value = 0;
  for (const std::string& name : kNames) scope.Set(name, Tensor::Full<float>({2, 3}, ++value));
}

TEST(JoinParameters, IsTheCombinedFileInTheOrderOfBytes) {
  const TemporaryDirectory directory;
  Scope scope;
  Fill(scope);
  SaveSeparate(scope, kNames, directory.File("split"));
  WriteFileAtomic(directory.File("split/.coracle-1-2-3.tmp"), "what a killed process left");
  const Names names = JoinParameters(directory.File("split"), directory.File("joined"));
  const Names sorted = {".c", "B", "a.y", "a/x", "a0", "b"};
  EXPECT_EQ(names, sorted);
  SaveCombined(scope, sorted, directory.File("combined"));
  EXPECT_EQ(ReadFile(directory.File("joined")), ReadFile(directory.File("combined")));
}

TEST(JoinParameters, WhatIsNoParameterIsRefused) {
  const TemporaryDirectory directory;
  Scope scope;
  Fill(scope);
  const std::string split = directory.File("split"), out = directory.File("out");
  const auto refusal = [&] { return WhatIsThrown([&] { JoinParameters(split, out); }); };
  EXPECT_NE(refusal().find("cannot read the directory"), std::string::npos) << refusal();
  MakeDirectories(split);
  EXPECT_NE(refusal().find("holds no parameter files"), std::string::npos) << refusal();
  SaveSeparate(scope, {"b"}, split);
  std::string bytes = ReadFile(split + "/b");
  WriteFileAtomic(split + "/b", bytes + "x");
  EXPECT_NE(refusal().find("1 bytes are left over"), std::string::npos) << refusal();
  WriteFileAtomic(split + "/b", bytes.substr(0, bytes.size() - 1));
  EXPECT_NE(refusal().find("damaged at byte"), std::string::npos) << refusal();
  EXPECT_FALSE(FileExists(out));
}

TEST(SplitParameters, NamesThatCannotBeFilesAreRefused) {
  const TemporaryDirectory directory;
  Scope scope;
  for (const char* name : {"../up", "/root", "a/../b", "a", "a/b", "a-b"})
    scope.Set(name, Tensor::Full<float>({1}, 1));
  const auto refusal = [&](const Names& names) {
    return WhatIsThrown([&] { SaveSeparate(scope, names, directory.File("split")); });
  };
  for (const char* name : {"../up", "/root", "a/../b"})
    EXPECT_NE(refusal({name}).find("cannot be a file name"), std::string::npos) << name;
  EXPECT_NE(refusal({"a/b", "a-b", "a"}).find("'a' and 'a/b' cannot have files of their own"),
            std::string::npos);
  EXPECT_FALSE(FileExists(directory.File("split")));
  EXPECT_FALSE(FileExists(directory.File("up")));
}
}  // namespace coracle::join_parameters_test
