// docs/caffe.md lists the types of layers that the converter knows.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/file.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace coracle::caffe::caffe_docs_test {

std::string Table() {
  std::string table = "| layer | becomes |\n|---|---|\n";
  for (const LayerRow& row : AllLayers())
    table += fmt::format("| {} | {}{} |\n", row.type, row.write ? "" : "refused: ", row.becomes);
  return table;
}

// CORACLE_UPDATE_DOCS=1 writes the table into the page.
TEST(CaffeDocs, TableIsThatOfTheConverter) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  const std::string path = std::string(sources) + "/docs/caffe.md";
  std::string page = ReadFile(path);
  const size_t begin = page.find("| layer |");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = page.find("\n\n", begin) + 1;
  if (std::getenv("CORACLE_UPDATE_DOCS"))
    WriteFileAtomic(path, page.replace(begin, end - begin, Table()));
  else
    EXPECT_EQ(page.substr(begin, end - begin), Table());
}

TEST(CaffeDocs, RowsDifferAndSaySomething) {
  std::string before;
  for (const LayerRow& row : AllLayers()) {
    EXPECT_LT(before, row.type);
    EXPECT_GT(std::string(row.becomes).size(), 3u) << row.type;
    before = row.type;
  }
}
}  // namespace coracle::caffe::caffe_docs_test
