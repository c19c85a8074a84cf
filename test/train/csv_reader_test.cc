// CsvReader: chunks of any size give the same rows, and the reader continues after a bad row.

#include <coracle/framework/base/error.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/train/data/csv_reader.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace coracle::csv_reader_test {
ReadChunk Chunks(const std::string& text, size_t size) {
  return [&text, size, at = size_t{0}](char* buffer, size_t room) mutable {
    const size_t bytes = std::min({size, room, text.size() - at});
    std::memcpy(buffer, text.data() + at, bytes);
    at += bytes;
    return bytes;
  };
}

// The rows of a text with their places; a bad row is its error.
std::vector<std::string> RowsOf(CsvReader* reader) {
  std::vector<std::string> rows;
  std::vector<CsvCell> cells;
  while (true) {
    try {
      if (!reader->Next(&cells)) return rows;
      std::string row = std::to_string(reader->line());
      for (const CsvCell& cell : cells) row += "|" + std::to_string(cell.column) + ":" + cell.text;
      rows.push_back(row);
    } catch (const Error& e) {
      rows.push_back(e.message());
      reader->SkipRow();
    }
  }
}

std::vector<std::string> Whole(const std::string& text) {
  CsvReader reader(text, {"t.csv"});
  return RowsOf(&reader);
}

using Rows = std::vector<std::string>;

TEST(CsvReader, RowsHavePlaces) {
  EXPECT_EQ(Whole("a, b ,\"c \"\"x\"\"\"\r\n\r\n1,\"two\nlines\",3\n4"),
            (Rows{"1|1:a|3:b|7:c \"x\"", "3|1:1|3:two\nlines|15:3", "5|1:4"}));
  EXPECT_EQ(Whole("\xEF\xBB\xBF"
                  "a,b\n"),
            (Rows{"1|1:a|3:b"}));
  EXPECT_EQ(Whole(""), Rows());
  EXPECT_EQ(Whole("\n\r\n"), Rows());
  EXPECT_EQ(Whole("\xEF\xBB\xBF"), Rows());
  EXPECT_EQ(Whole("\xEF\xBB"), (Rows{"1|1:\xEF\xBB"}));
}

TEST(CsvReader, ContinuesAfterABadRow) {
  EXPECT_EQ(Whole("1,2\n\"3\"x,4\n5,6\n"),
            (Rows{"1|1:1|3:2", "t.csv:2:4: text follows a closing quote", "3|1:5|3:6"}));
  EXPECT_EQ(Whole("1\n\"2\n3"), (Rows{"1|1:1", "t.csv:2:1: a quoted cell has no closing quote"}));
}

TEST(CsvReader, ChunksGiveTheSameRows) {
  const std::string letters = "a\"\",\n\r 1";
  const Philox random(7, 0, 0);
  for (uint64_t round = 0; round < 500; ++round) {
    std::string text = round % 5 == 0 ? "\xEF\xBB\xBF" : "";
    for (uint64_t i = 0; i < 10; ++i)
      for (const uint32_t word : random.Block(round * 10 + i))
        text += letters[word % letters.size()];
    const Rows expected = Whole(text);
    for (const size_t size : {1, 2, 3, 7, 100}) {
      CsvReader reader(Chunks(text, size), {"t.csv"});
      ASSERT_EQ(RowsOf(&reader), expected) << text << " in chunks of " << size;
    }
  }
}

// An unclosed quote must not read a whole large file into memory.
TEST(CsvReader, LimitsRows) {
  const std::string text = "1,2\n\"" + std::string(5000, 'x') + "\n" + "3,4\n";
  for (const size_t size : {1, 64, 4096}) {
    CsvReader reader(Chunks(text, size), {"t.csv", ',', 1000});
    const Rows rows = RowsOf(&reader);
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[1], "t.csv:2:1: the row has more than 1000 B");
    // The text does not say where rows begin again.
    EXPECT_EQ(rows[2],
              "t.csv:2:1: a quoted cell has no closing quote, so the rest of the text belongs to "
              "this row");
  }
  const std::string long_cell = std::string(5000, 'y');
  CsvReader reader(Chunks(long_cell, 64), {"t.csv", ',', 1000});
  EXPECT_EQ(RowsOf(&reader), (Rows{"t.csv:1:1: the row has more than 1000 B"}));
}

// Doubled quotes alone must not pass the limit, wherever the chunks end.
TEST(CsvReader, LimitsRowsOfDoubledQuotes) {
  const std::string text = "1,2\n\"" + std::string(5000, '"') + "\"\n3,4\n";
  for (const size_t size : {size_t{1}, size_t{2}, size_t{3}, size_t{64}}) {
    CsvReader reader(Chunks(text, size), {"t.csv", ',', 1000});
    std::vector<CsvCell> cells;
    ASSERT_TRUE(reader.Next(&cells));
    EXPECT_THROW(reader.Next(&cells), Error) << size;
    EXPECT_LT(cells[0].text.size(), 1000u) << size;
  }
}

// The next row need not have begun: a pipe may wait for the answer to this one.
// A quoted cell that is too large has lines that are no rows.
TEST(CsvReader, SkipsAQuotedCellThatIsTooLarge) {
  const std::string large =
      "\"" + std::string(300, 'x') + "\n7,8\n" + std::string(300, 'y') + " \"\"z\"\"\n9,\"";
  const std::string text = "1,2\n" + large + ",\"more\nlines\",3\n4,5\n";
  for (const size_t size : {size_t{1}, size_t{7}, size_t{64}, size_t{1000}}) {
    CsvReader reader(Chunks(text, size), {"t.csv", ',', 100});
    const Rows rows = RowsOf(&reader);
    ASSERT_EQ(rows.size(), 3u) << size;
    EXPECT_EQ(rows[0], "1|1:1|3:2");
    EXPECT_EQ(rows[1], "t.csv:2:1: the row has more than 100 B") << size;
    EXPECT_EQ(rows[2], "7|1:4|3:5") << size;
  }
}

TEST(CsvReader, DoesNotReadPastALineEnd) {
  int reads = 0;
  CsvReader reader(
      [&](char* buffer, size_t) {
        ++reads;
        std::memcpy(buffer, "1,2\r\n", 5);
        return size_t{5};
      },
      {"t.csv"});
  std::vector<CsvCell> cells;
  ASSERT_TRUE(reader.Next(&cells));
  EXPECT_EQ(reads, 1);
  ASSERT_TRUE(reader.Next(&cells));
  EXPECT_EQ(reads, 2);
}

}  // namespace coracle::csv_reader_test
