// Variables of an op and blocks that it runs are walked with the verbs of framework/ir
// (OpDesc::ForEachInput, AnyOutput, RenameInputs, SubBlocks; ProgramDesc::BlocksRunBy): what is
// written by hand forgets absent variables, or attrs that name several blocks.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace walk_rule_test {

namespace fs = std::filesystem;

const std::vector<std::string> kDirectories = {
    "capi",     "serve",  "quantize",  "tools",         "convert",     "train",       "edit",
    "inspect",  "layers", "optimizer", "clip",          "initializer", "regularizer", "backward",
    "executor", "passes", "operators", "communication", "framework",   "bench",       "examples"};

struct Exception {
  std::string path;  // begins with it
  std::string reason;
};

// May go over the names in slots themselves.
const std::vector<Exception> kSlotLoops = {
    {"framework/ir/", "the verbs"},
    {"framework/io/program_codec.cc", "a file holds each position as it is"},
    {"framework/op/context/gradient_context.cc", "lists of gradients that are cut slot by slot"},
};

// May look for blocks among attrs themselves.
const std::vector<Exception> kBlockAttrs = {
    {"framework/ir/", "the verbs"},
    {"operators/control/call.cc", "asks for one attr of an op that need not be in a program"},
};

bool IsException(const std::vector<Exception>& exceptions, const std::string& path) {
  for (const Exception& exception : exceptions) {
    if (path.rfind(exception.path, 0) == 0) return true;
  }
  return false;
}

// Lines of a text that begin a loop over the names of `slot`, a variable of a loop around them.
std::vector<size_t> SlotLoops(const std::string& text) {
  static const std::regex outer(R"(^( *)for \((?:const )?(?:Slot|auto)& (\w+) :)");
  std::vector<size_t> found;
  std::istringstream in(text);
  std::string slot;
  size_t indent = 0, number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(' ');
    std::smatch match;
    if (std::regex_search(line, match, outer)) {
      indent = static_cast<size_t>(match[1].length());
      slot = match[2];
    } else if (begin != line.npos && begin <= indent) {
      slot.clear();
    } else if (!slot.empty() && line.find("for (") != line.npos &&
               line.find(slot + ".args") != line.npos) {
      found.push_back(number);
    }
  }
  return found;
}

std::string TextOf(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class F>
void ForEachSource(const F& f) {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  const fs::path source_dir = directory ? directory : ".";
  for (const std::string& name : kDirectories) {
    for (const auto& entry : fs::recursive_directory_iterator(source_dir / name)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      f(fs::relative(entry.path(), source_dir).string(), TextOf(entry.path()));
    }
  }
}

TEST(WalkRule, SlotLoopsAreFound) {
  EXPECT_EQ(SlotLoops("  for (const Slot& slot : op.inputs()) {\n"
                      "    Count(slot.args.size());\n"
                      "    for (const std::string& name : slot.args) {\n"
                      "    }\n"
                      "    for (size_t i = 0; i < slot.args.size(); ++i) Use(i);\n"
                      "  }\n"
                      "  for (const std::string& name : slot.args) Use(name);\n"),
            (std::vector<size_t>{3, 5}));
}

TEST(WalkRule, NoLoopsOverTheNamesOfSlots) {
  int files = 0;
  ForEachSource([&](const std::string& path, const std::string& text) {
    ++files;
    if (IsException(kSlotLoops, path)) return;
    for (size_t line : SlotLoops(text))
      ADD_FAILURE() << path << ":" << line << ": use ForEachInput, AnyInput or RenameInputs";
  });
  EXPECT_GT(files, 300);
}

TEST(WalkRule, NoSearchForBlocksAmongAttrs) {
  static const std::regex pattern(R"((get_if|holds_alternative)<(std::vector<)?BlockRef)");
  ForEachSource([&](const std::string& path, const std::string& text) {
    if (IsException(kBlockAttrs, path) || !std::regex_search(text, pattern)) return;
    ADD_FAILURE() << path << ": use OpDesc::SubBlocks, which knows BLOCK and BLOCKS";
  });
}

}  // namespace walk_rule_test
