#pragma once
// Converts between sentences and tensors: the data of a training job, and a trained tagger.

#include <coracle/coracle.h>

#include <string>
#include <vector>

#include "sentences.h"

// Writes the sentences as an .npz of `words` and `tags`, which are numbers in AllWords() and
// AllTags(): int64 [words of all sentences, 1] with the offsets of the sentences as their LoD.
void WriteSentences(const std::vector<Sentence>& sentences, const std::string& path);

class Tagger {
 public:
  // Loads a model that the job deployed. Throws coracle::Error.
  explicit Tagger(const std::string& model);

  // Returns the words with their tags. Throws for a word that is not in AllWords().
  Sentence Tag(const std::vector<std::string>& words);

 private:
  coracle::Scope scope_;
  coracle::PreparedProgram net_;
};
