// Requirements on every op declaration. The end of operators_test checks that every constraint and
// gradient is tested, because it sees what its tests provoked (test/completeness.cc).
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

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
    EXPECT_TRUE(def.HasReferenceKernel() || def.block.replaced || def.Expands() ||
                def.kind != OpKind::kCompute)
        << type;
  }
}

// How rows pass is declared, or clear from the kind of the op.
TEST(Registry, EveryOpSaysHowRowsPass) {
  for (const std::string& type : DefaultOps().Types()) {
    const OpSpec& def = DefaultOps().Get(type);
    const bool clear = def.elementwise || IsGradientOp(type) || def.kind != OpKind::kCompute ||
                       def.block.runs != BlockRuns::kNone;
    EXPECT_TRUE(clear || def.rows.fn || def.rows.effect.rule != RowRule::kUndeclared)
        << type << " declares no Rows";
    for (const std::string& slot : def.rows.tables)
      EXPECT_TRUE(IsGradientOp(type) || def.FindInput(slot)) << type << " has no input " << slot;
    for (const std::vector<std::string>& slots : def.rows.linear)
      for (const std::string& slot : slots)
        EXPECT_TRUE(def.FindInput(slot)) << type << " has no input " << slot;
    EXPECT_EQ(static_cast<bool>(def.rows.fn), !def.rows.text.empty()) << type;
  }
}

// An op with such an attr says whether it works along the axes that the attr names. The attr of
// these ops is not about the axes of the first input.
TEST(Registry, EveryOpWithAnAxisSaysWhetherItWorksAlongIt) {
  const std::set<std::string> others = {"box_coder",
                                        "fused_elemwise_activation",
                                        "fused_elemwise_add_activation",
                                        "fusion_seqpool_concat",
                                        "fusion_seqpool_cvm_concat",
                                        "quantized_add",
                                        "quantized_mul",
                                        "spectral_norm",
                                        "stack"};
  int declared = 0;
  for (const std::string& type : DefaultOps().Types()) {
    const OpSpec& def = DefaultOps().Get(type);
    if (def.elementwise || def.rows.fn || def.rows.effect.rule != RowRule::kEach) continue;
    bool has_axis = false;
    for (const char* attr : {"axis", "axes", "dim", "dims", "begin_norm_axis"})
      has_axis |= def.FindAttr(attr) != nullptr;
    declared += def.axes != AxesAttr::kNone;
    EXPECT_EQ(has_axis && def.axes == AxesAttr::kNone, others.count(type) > 0) << type;
  }
  EXPECT_GT(declared, 25);
}

TEST(Registry, LossesOfSoftLabelsDeclareThem) {
  int losses = 0;
  for (const std::string& type : DefaultOps().Types()) {
    const OpSpec& def = DefaultOps().Get(type);
    if (IsGradientOp(type) || !def.FindAttr("soft_label")) continue;
    ++losses;
    EXPECT_EQ(def.soft_label_attr, "soft_label") << type;
    EXPECT_EQ(def.soft_label_slots, std::vector<std::string>{"Label"}) << type;
    EXPECT_FALSE(def.score_slots.empty()) << type;
  }
  EXPECT_GE(losses, 3);
}

TEST(Registry, OpsExpandToOpsWithKernels) {
  int expanding = 0;
  for (const std::string& type : DefaultOps().Types()) {
    const OpSpec& def = DefaultOps().Get(type);
    expanding += def.Expands() ? 1 : 0;
    EXPECT_EQ(def.Expands(), !def.expands_to.empty()) << type;
    for (const std::string& part : def.expands_to)
      EXPECT_TRUE(DefaultOps().Get(part).HasReferenceKernel()) << type << " expands to " << part;
  }
  EXPECT_GE(expanding, 14);
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
  const auto plain = [] { return OpDef("a").Doc("text").NoGradient("none").Input("X", "d"); };
  fails(plain().Scores({"Y"}), "Scores names the unknown Y");
  fails(plain().SoftLabels({"X"}, "soft"), "SoftLabels names the unknown soft");
  fails(plain().Attr<float>("axis", "d").WorksAlong("axis"), "WorksAlong names the unknown axis");
  fails(plain().Attr<int32_t>("axis", "d").Axes("axis", AxesAttr::kFrom), "cannot be permuted");
  const auto expand = [](ExpandContext&) {};
  fails(OpDef("a").Doc("text").NoGradient("none").Expands({"b"}, expand), "has the kernels");
  fails(OpDef("a").Doc("text").Expands({"b"}, expand).Fast({[](const auto&) { return Kernel(); }}),
        "has the kernels");
  ops.Add(OpDef("a").Doc("text").NoGradient("none"));
  fails(OpDef("a").Doc("text").NoGradient("none"), "already registered");
}
}  // namespace coracle::registry_test
