// Comments are plain English: subject first, the field's word, one idea a sentence. Words that mark
// the opposite, such as a sentence that opens with "Of", are counted in each folder. Lines that a
// reflow has damaged are found too: a last line of one word, and headings merged into sentences. So
// are comments that an edit has cut off from their beginning or from their declaration.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace english_test {

namespace fs = std::filesystem;

fs::path SourceDir() {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  return directory ? directory : ".";
}

struct Line {
  size_t number;
  std::string text;  // without "//"
};

// The comments of a file: adjacent full-line comments.
std::vector<std::vector<Line>> CommentsOf(const fs::path& file) {
  std::vector<std::vector<Line>> comments;
  std::ifstream in(file);
  bool within = false;
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(' ');
    const bool is_comment = begin != line.npos && line.compare(begin, 2, "//") == 0;
    if (is_comment && !within) comments.emplace_back();
    if (is_comment) comments.back().push_back({number, line.substr(begin + 2)});
    within = is_comment;
  }
  return comments;
}

bool IsMarked(const std::string& text, bool begins_sentence) {
  static const std::regex words(
      "\\b(behind|beside|stands?|told|tells?|nobody|anew|alike|so many|but for|that of|those of|"
      "(is|are) no (?!longer))\\b",
      std::regex::icase);
  static const std::regex opening("^ *(Of|What) "), inner("[.:] (Of|What) ");
  return std::regex_search(text, words) || std::regex_search(text, inner) ||
         (begins_sentence && std::regex_search(text, opening));
}

bool EndsSentence(const std::string& text) {
  const size_t last = text.find_last_not_of(' ');
  return last == text.npos || text[last] == '.' || text[last] == ':';
}

// A single word after a line that was wrapped.
bool IsOrphan(const std::vector<Line>& comment) {
  if (comment.size() < 2 || comment.back().text.starts_with(" NOLINT")) return false;
  const std::string &last = comment.back().text, &before = comment[comment.size() - 2].text;
  return before.size() > 50 && last.size() > 1 && last.find(' ', 1) == last.npos;
}

bool IsMergedHeading(const std::string& text) {
  static const std::regex merged("--- [a-z ]+ --- [A-Z]");
  return std::regex_search(text, merged);
}

// A comment whose beginning is lost: "| for complex X." Ops and names may begin one: "|x|", ".pb".
bool IsCut(const std::string& text) {
  static const std::regex cut("^ ?([,;:)!?]|[|&*/=] )");
  return std::regex_search(text, cut);
}

// In a header each comment belongs to the declaration after it, or is a heading: "--- memory ---".
std::vector<size_t> CommentsWithoutDeclaration(const fs::path& file) {
  std::vector<size_t> found;
  std::ifstream in(file);
  bool after_comment = false, after_blank = false, heading = false;
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(' ');
    const bool is_comment = begin != line.npos && line.compare(begin, 2, "//") == 0;
    if (is_comment && after_blank && !heading) found.push_back(number - 2);
    if (is_comment && !after_comment)
      heading = line.find("// --- ") != line.npos || line.find("// ---- ") != line.npos;
    after_blank = begin == line.npos && after_comment;
    after_comment = is_comment;
  }
  return found;
}

struct Count {
  size_t lines = 0;
  std::vector<std::string> marked;
};

TEST(English, CommentsArePlain) {
  std::map<std::string, Count> folders;
  std::vector<std::string> damaged;
  for (const auto& entry : fs::recursive_directory_iterator(SourceDir())) {
    const fs::path path = fs::relative(entry.path(), SourceDir());
    const std::string folder = path.begin()->string(), ending = path.extension().string();
    if ((ending != ".cc" && ending != ".h") || folder.starts_with("build") || folder[0] == '.')
      continue;
    Count& count = folders[folder];
    for (const auto& comment : CommentsOf(entry.path())) {
      bool begins = true;
      for (const Line& line : comment) {
        const std::string place = path.string() + ":" + std::to_string(line.number);
        ++count.lines;
        if (IsMarked(line.text, begins)) count.marked.push_back(place + ":" + line.text);
        if (IsMergedHeading(line.text)) damaged.push_back(place + ": a heading inside a sentence");
        begins = EndsSentence(line.text);
      }
      if (IsCut(comment.front().text))
        damaged.push_back(path.string() + ":" + std::to_string(comment.front().number) +
                          ": a comment without its beginning");
      if (IsOrphan(comment))
        damaged.push_back(path.string() + ":" + std::to_string(comment.back().number) +
                          ": a line of one word");
    }
    if (ending == ".h") {
      for (const size_t line : CommentsWithoutDeclaration(entry.path()))
        damaged.push_back(path.string() + ":" + std::to_string(line) +
                          ": a comment without a declaration; a heading is // --- heading ---");
    }
  }
  ASSERT_GT(folders.size(), 15u);
  for (const auto& [folder, count] : folders) {
    std::string shown;
    for (size_t i = 0; i < std::min<size_t>(count.marked.size(), 20); ++i)
      shown += "\n" + count.marked[i];
    EXPECT_LE(count.marked.size() * 100, 3 * std::max<size_t>(count.lines, 100))
        << folder << ": " << count.marked.size() << " of " << count.lines << " lines" << shown;
  }
  for (const std::string& place : damaged) ADD_FAILURE() << place;
}

// The help of a job: each field has a text that begins with a capital letter.
TEST(English, FieldsOfJobsHaveTexts) {
  static const std::regex doc(
      R"rx(\.(Add|Nested)\("(\w+)",\s*&O::[\w.]+,\s*((\w+\([\w():]*\)|k\w+),\s*)?"(.?))rx");
  int fields = 0;
  for (const char* file : {"train/job/job_fields.cc", "train/data/source_fields.cc"}) {
    std::ifstream in(SourceDir() / file);
    const std::string code{std::istreambuf_iterator<char>(in), {}};
    for (std::sregex_iterator it(code.begin(), code.end(), doc), end; it != end; ++it, ++fields) {
      const char first = (*it)[5].str()[0];
      EXPECT_TRUE(first != '"' && !std::islower(static_cast<unsigned char>(first)))
          << file << ": " << (*it)[2];
    }
  }
  EXPECT_GT(fields, 100);
}

}  // namespace english_test
