// docs/onnx.md lists the op types that the importers know.
#include <coracle/convert/onnx/import/node_importers.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace coracle::onnx::onnx_docs_test {

std::string Versions(const NodeImporter& row) {
  const std::string from = std::to_string(row.since);
  return row.until == kNewestOpset ? "from " + from : fmt::format("{} to {}", from, row.until);
}

std::string Table() {
  std::vector<NodeImporter> rows = AllNodeImporters().rows();
  std::sort(rows.begin(), rows.end(), [](const NodeImporter& a, const NodeImporter& b) {
    return std::tie(a.op_type, a.since) < std::tie(b.op_type, b.since);
  });
  std::string table = "| ONNX | operator sets | becomes |\n|---|---|---|\n";
  for (const NodeImporter& row : rows) {
    table +=
        fmt::format("| {}{} | {} | {} |\n", row.op_type,
                    row.domain.empty() ? "" : " (" + row.domain + ")", Versions(row), row.maps_to);
  }
  return table;
}

// CORACLE_UPDATE_DOCS=1 writes the table into the page.
TEST(OnnxDocs, TableIsThatOfTheImporters) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  const std::string path = std::string(sources) + "/docs/onnx.md";
  std::string page = ReadFile(path);
  const size_t begin = page.find("| ONNX |");
  ASSERT_NE(begin, std::string::npos);
  size_t end = page.find("\n\n", begin);
  end = end == std::string::npos ? page.size() : end + 1;
  if (std::getenv("CORACLE_UPDATE_DOCS"))
    WriteFileAtomic(path, page.replace(begin, end - begin, Table()));
  else
    EXPECT_EQ(page.substr(begin, end - begin), Table());
}

TEST(NodeImporters, VersionsDecide) {
  NodeImporters importers;
  importers.Add({.op_type = "Op", .since = 7, .until = 12, .takes = "", .maps_to = "old"});
  importers.Add({.op_type = "Op", .since = 13, .until = 20, .takes = "", .maps_to = "new"});
  importers.Add({.op_type = "Op", .since = 1, .takes = "", .maps_to = "other", .domain = "other"});
  EXPECT_EQ(importers.Get("", "Op", 12).maps_to, "old");
  EXPECT_EQ(importers.Get("", "Op", 13).maps_to, "new");
  EXPECT_EQ(importers.Get("other", "Op", 1).maps_to, "other");
  const auto message = [&](const std::string& type, int version) -> std::string {
    try {
      importers.Get("", type, version);
    } catch (const Error& e) {
      return e.message();
    }
    return "";
  };
  EXPECT_EQ(message("Op", 21), "operator set 21 is too new: the op is known up to 20");
  EXPECT_EQ(message("Op", 6), "operator set 6 is too old for this op");
  EXPECT_EQ(message("Opp", 13), "the op type has no counterpart; did you mean Op?");
}
}  // namespace coracle::onnx::onnx_docs_test
