#pragma once
// Sentences of a small grammar, whose words have a tag each (the part of speech). A third of the
// words can be several: in "they can open the can" the first "can" is a MODAL, the second a NOUN,
// and only the words around them tell.

#include <cstdint>
#include <string>
#include <vector>

struct Word {
  std::string text, tag;
  bool operator==(const Word&) const = default;
};
using Sentence = std::vector<Word>;

// All words and all tags of the grammar, sorted; a model knows them by their places in these lists.
const std::vector<std::string>& AllWords();
const std::vector<std::string>& AllTags();

struct Sentences {
  std::vector<Sentence> train, test;
};
// Drawn by the seed; no two are the same words, so that the test set is new to a tagger.
Sentences DrawSentences(size_t train, size_t test, uint64_t seed);

// The share of the words of `test` that a tagger gets right who gives each word the tag that it has
// most often in `train`.
double MostFrequentTags(const std::vector<Sentence>& train, const std::vector<Sentence>& test);
