#include "sentences.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace {

using Words = std::vector<const char*>;

// The words for each tag. Many words are in two or three lists.
const std::map<std::string, Words>& Lexicon() {
  static const std::map<std::string, Words> lexicon = {
      {"DET", {"the", "a", "this", "that", "her", "every"}},
      {"PRON", {"we", "they", "you", "her", "them", "us"}},
      {"MODAL", {"can", "will", "must", "may"}},
      {"CONJ", {"and", "but", "because", "that"}},
      {"PREP", {"in", "on", "near", "by", "with"}},
      {"ADV", {"often", "still", "now", "well", "slowly"}},
      {"ADJ",
       {"old", "young", "small", "red", "light", "clean", "open", "dry", "cold", "slow", "well"}},
      {"NOUN",
       {"boat", "river", "house", "child",  "dog",   "garden", "can",   "will", "watch", "light",
        "fish", "cook",  "plant", "water",  "book",  "walk",   "paint", "cut",  "well",  "hand",
        "face", "man",   "cold",  "people", "women", "dogs",   "boats", "still"}},
      {"VERB",
       {"carry", "build", "see",  "find", "say",   "think", "sleep", "wait", "can",   "will",
        "watch", "light", "fish", "cook", "plant", "water", "book",  "walk", "paint", "cut",
        "hand",  "face",  "man",  "open", "clean", "dry",   "slow",  "still"}},
  };
  return lexicon;
}

class Grammar {
 public:
  explicit Grammar(uint64_t seed) : random_(seed) {}

  Sentence Draw() {
    sentence_.clear();
    const uint64_t kind = Below(10);
    if (kind < 2) {  // they say (that) the man can cook
      Add(PickPeople({"we", "they", "you", "people", "women"}));
      Add({PickWord({"say", "think"}), "VERB"});
      if (Below(3) > 0) Add({"that", "CONJ"});
    }
    Clause();
    if (kind >= 7) {
      Add({PickWord({"and", "but", "because"}), "CONJ"});
      Clause();
    }
    return sentence_;
  }

 private:
  uint64_t Below(uint64_t n) { return random_() % n; }
  const char* PickWord(const Words& words) { return words[Below(words.size())]; }
  void Add(Word word) { sentence_.push_back(std::move(word)); }
  // Picks a subject for several people.
  Word PickPeople(const Words& words) {
    const std::string text = PickWord(words);
    return {text, text == "people" || text == "women" ? "NOUN" : "PRON"};
  }
  void Any(const char* tag) { Add({PickWord(Lexicon().at(tag)), tag}); }

  void Clause() {
    if (Below(2) == 0) {  // plural: the verb may have no modal verb
      if (Below(2) == 0) {
        Add({PickWord({"we", "they", "you"}), "PRON"});
      } else {
        if (Below(2) == 0) Add({PickWord({"the", "her"}), "DET"});
        if (Below(3) == 0) Any("ADJ");
        Add({PickWord({"people", "women", "dogs", "boats"}), "NOUN"});
      }
      if (Below(3) == 0) Any("MODAL");
    } else {  // singular: with a modal verb before it
      NounPhrase();
      Any("MODAL");
    }
    if (Below(6) == 0) Add({PickWord({"often", "still", "now"}), "ADV"});
    if (Below(3) == 0) {
      Add({PickWord({"sleep", "wait", "fish", "cook", "walk"}), "VERB"});
      if (Below(3) == 0) Add({PickWord({"well", "often", "now", "slowly"}), "ADV"});
    } else {
      Add({PickWord({"carry", "build", "see",   "find",  "watch", "light", "plant",
                     "water", "can",   "book",  "paint", "cut",   "hand",  "face",
                     "man",   "open",  "clean", "dry",   "slow",  "still", "will"}),
           "VERB"});
      Object();
    }
    if (Below(4) == 0) {
      Any("PREP");
      NounPhrase();
    }
  }

  void NounPhrase() {
    Any("DET");
    for (int k = 0; k < 2 && Below(3) == 0; ++k) Any("ADJ");
    Any("NOUN");
  }

  void Object() {
    const uint64_t kind = Below(8);
    if (kind == 0) {
      Add({PickWord({"her", "them", "us"}), "PRON"});
    } else if (kind == 1) {
      Add({PickWord({"fish", "water", "paint", "light", "plant", "boats"}), "NOUN"});
    } else {
      NounPhrase();
    }
  }

  std::mt19937_64 random_;
  Sentence sentence_;
};

std::vector<std::string> Sorted(const std::set<std::string>& set) {
  return {set.begin(), set.end()};
}

std::string TextOf(const Sentence& sentence) {
  std::string text;
  for (const Word& word : sentence) text += word.text + " ";
  return text;
}

}  // namespace

const std::vector<std::string>& AllWords() {
  static const std::vector<std::string> all = [] {
    std::set<std::string> words;
    for (const auto& entry : Lexicon()) words.insert(entry.second.begin(), entry.second.end());
    return Sorted(words);
  }();
  return all;
}

const std::vector<std::string>& AllTags() {
  static const std::vector<std::string> all = [] {
    std::set<std::string> tags;
    for (const auto& entry : Lexicon()) tags.insert(entry.first);
    return Sorted(tags);
  }();
  return all;
}

Sentences DrawSentences(size_t train, size_t test, uint64_t seed) {
  Grammar grammar(seed);
  std::set<std::string> seen;
  const auto draw = [&](size_t count) {
    std::vector<Sentence> sentences;
    while (sentences.size() < count) {
      Sentence sentence = grammar.Draw();
      if (seen.insert(TextOf(sentence)).second) sentences.push_back(std::move(sentence));
    }
    return sentences;
  };
  Sentences sentences;
  sentences.train = draw(train);
  sentences.test = draw(test);
  return sentences;
}

double MostFrequentTags(const std::vector<Sentence>& train, const std::vector<Sentence>& test) {
  std::map<std::string, std::map<std::string, int>> counts;
  for (const Sentence& sentence : train)
    for (const Word& word : sentence) ++counts[word.text][word.tag];
  int right = 0, all = 0;
  for (const Sentence& sentence : test) {
    for (const Word& word : sentence) {
      const auto& tags = counts[word.text];
      const auto best =
          std::max_element(tags.begin(), tags.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      right += best != tags.end() && best->first == word.tag;
      ++all;
    }
  }
  return static_cast<double>(right) / std::max(all, 1);
}
