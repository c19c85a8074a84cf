#pragma once
// Sentences of a small grammar, in which each word has a tag (the part of speech). A third of the
// words can have several tags: in "they can open the can", the first "can" is a MODAL and the
// second a NOUN, and only the words around them show which.

#include <cstdint>
#include <string>
#include <vector>

struct Word {
  std::string text, tag;
  bool operator==(const Word&) const = default;
};
using Sentence = std::vector<Word>;

// All words and all tags of the grammar, sorted; a model uses their positions in these lists.
const std::vector<std::string>& AllWords();
const std::vector<std::string>& AllTags();

struct Sentences {
  std::vector<Sentence> train, test;
};
// Draws sentences with the seed; no two have the same words, so the tagger has not seen the
// test set.
Sentences DrawSentences(size_t train, size_t test, uint64_t seed);

// The share of the words of `test` that a tagger gets right if it gives each word its most frequent
// tag in `train`.
double MostFrequentTags(const std::vector<Sentence>& train, const std::vector<Sentence>& test);
