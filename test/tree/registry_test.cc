// What every op declaration must have. That every constraint and gradient is tested is checked at
// the end of operators_test, which sees what its tests provoked (test/completeness.cc).
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

namespace coracle::registry_test {

namespace fs = std::filesystem;

fs::path SourceDir() {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  return directory ? directory : ".";
}

// File name -> text, of all op tests.
const std::map<std::string, std::string>& OpTests() {
  static const auto* texts = [] {
    auto* made = new std::map<std::string, std::string>;
    for (const auto& entry : fs::recursive_directory_iterator(SourceDir() / "test/operators")) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path());
      (*made)[entry.path().filename()] = {std::istreambuf_iterator<char>(in), {}};
    }
    return made;
  }();
  return *texts;
}

// The tests that name the op; families build names from parts, so a common prefix will do for them.
std::vector<const std::string*> TestsOf(const std::string& type) {
  std::vector<const std::string*> found;
  for (const auto& [file, text] : OpTests()) {
    if (text.find("\"" + type + "\"") != std::string::npos ||
        text.find("\"" + type + ".") != std::string::npos) {
      found.push_back(&text);
    }
  }
  return found;
}

bool IsGradientOp(const std::string& type) {
  return type.size() > 5 && type.substr(type.size() - 5) == "_grad";
}

TEST(Registry, EveryForwardOpIsTested) {
  for (const std::string& type : DefaultOps().Types()) {
    EXPECT_TRUE(IsGradientOp(type) || !TestsOf(type).empty())
        << "no test in test/operators names " << type;
  }
}

TEST(Registry, EveryComputingOpHasAReferenceKernel) {
  for (const std::string& type : DefaultOps().Types()) {
    const OpSpec& def = DefaultOps().Get(type);
    EXPECT_TRUE(def.HasReferenceKernel() || def.block.replaced || def.kind != OpKind::kCompute)
        << type;
  }
}

TEST(Registry, DeclarationsAreComplete) {
  OpRegistry ops;
  auto fails = [&](OpDef def, const std::string& what) {
    try {
      ops.Add(std::move(def));
      ADD_FAILURE() << "accepted an OpDef: " << what;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find(what), std::string::npos) << e.message();
    }
  };
  fails(OpDef("a").NoGradient("none"), "needs a doc");
  fails(OpDef("a").Doc("text"), "needs either a gradient or a reason");
  fails(OpDef("a").Doc("text").NoGradient("none").Input("X", ""), "has no doc");
  fails(OpDef("a").Doc("text").NoGradient("none").Input("X", "d").Input("X", "d"),
        "declared twice");
  fails(OpDef("a").Doc("text").NoGradient("none").Inplace("X", "Out"), "names an unknown slot");
  ops.Add(OpDef("a").Doc("text").NoGradient("none"));
  fails(OpDef("a").Doc("text").NoGradient("none"), "already registered");
}
}  // namespace coracle::registry_test
