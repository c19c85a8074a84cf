#pragma once
// BytePairs: encodes texts as GPT-2 does (Radford and others: "Language models are unsupervised
// multitask learners", 2019), by merges of byte pairs (Sennrich, Haddow, Birch: "Neural machine
// translation of rare words with subword units", ACL 2016).

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace coracle::inline internal {

// A text is first cut into pieces: a contraction ('s, 't, 're, 've, 'm, 'll, 'd), or a run of
// letters, of digits or of other characters, each with at most one space before it, or a run of
// white space without its last character if a word follows. A piece's bytes become characters of
// the alphabet in which the files are written (see AlphabetOf), one token for each. Then the pair
// of neighbours whose merge comes first in the list is merged, everywhere in the piece, until no
// pair of neighbours is in the list. Special tokens such as <|endoftext|> are plain text.
class BytePairs {
 public:
  // `merges` are "LEFT RIGHT"; token i has the number i. Throws kInvalidArgument for a merge of
  // another form, one that appears twice, and one whose tokens are not all in the list.
  BytePairs(std::vector<std::string> tokens, std::vector<std::string> merges,
            const std::string& source);
  // Reads a file with a merge on each line (a first line "#version..." is skipped), and a JSON
  // object that gives each token its number; the numbers must be 0, 1, 2, ...
  static BytePairs Read(const std::string& merges_file, const std::string& vocabulary_file);

  // Throws kInvalidArgument for bytes that are not UTF-8, and for a byte without a token.
  std::vector<int64_t> Encode(std::string_view text) const;
  // Appends what Encode returns. Needs some 20 bytes more for each byte of the longest piece. If it
  // throws, some numbers may have been appended.
  void Append(std::string_view text, std::vector<int64_t>* ids) const;

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<std::string>& merges() const { return merges_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  struct Merge {
    int64_t rank, result;
  };
  const Merge* Find(int64_t left, int64_t right) const;
  void EncodePiece(std::string_view piece, std::vector<int64_t>* ids) const;

  std::vector<std::string> tokens_, merges_;
  std::vector<int64_t> bytes_;  // the token of each byte; -1: none
  std::unordered_map<uint64_t, Merge> ranks_;
};

// The character of each byte in the files, as UTF-8: the printable ones of Latin-1 are themselves,
// and the others are the characters from U+0100 on, in the order of the bytes.
std::string AlphabetOf(unsigned char byte);

// Cuts a text into pieces, one after the other.
class PieceReader {
 public:
  explicit PieceReader(std::string_view text) : text_(text) {}
  // Returns false at the end. Throws kInvalidArgument for bytes that are not UTF-8.
  bool Next(std::string_view* piece);

 private:
  enum class Kind;
  struct Character {
    size_t at = 0, bytes = 0;
    Kind kind = {};
  };
  static Kind KindOf(std::string_view character);
  Character At(size_t at);
  size_t EndOfRun(const Character& first, size_t* last);

  std::string_view text_;
  size_t at_ = 0;
  Character last_;  // that At has read
};

}  // namespace coracle::inline internal
