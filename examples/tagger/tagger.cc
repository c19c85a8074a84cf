#include "tagger.h"

#include <algorithm>

namespace {

int64_t NumberOf(const std::string& word, const std::vector<std::string>& sorted) {
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), word);
  if (found == sorted.end() || *found != word)
    throw coracle::Error(coracle::ErrorCode::kNotFound, "the word '" + word + "' is not known");
  return found - sorted.begin();
}

coracle::Tensor Rows(const std::vector<int64_t>& numbers) {
  return coracle::Tensor::Of<int64_t>({static_cast<int64_t>(numbers.size()), 1}, numbers);
}

coracle::PreparedProgram Load(const std::string& model, coracle::Scope& scope) {
  return coracle::Executor().PrepareOwning(coracle::LoadInferenceModel(model, scope).program,
                                           scope);
}

}  // namespace

void WriteSentences(const std::vector<Sentence>& sentences, const std::string& path) {
  std::vector<int64_t> words, tags;
  std::vector<uint64_t> offsets{0};
  for (const Sentence& sentence : sentences) {
    for (const Word& word : sentence) {
      words.push_back(NumberOf(word.text, AllWords()));
      tags.push_back(NumberOf(word.tag, AllTags()));
    }
    offsets.push_back(words.size());
  }
  coracle::Tensor word_rows = Rows(words), tag_rows = Rows(tags);
  word_rows.lod() = tag_rows.lod() = {offsets};
  coracle::WriteNpz({{"words", word_rows}, {"tags", tag_rows}}, path);
}

Tagger::Tagger(const std::string& model) : net_(Load(model, scope_)) {}

Sentence Tagger::Tag(const std::vector<std::string>& words) {
  std::vector<int64_t> numbers;
  for (const std::string& word : words) numbers.push_back(NumberOf(word, AllWords()));
  coracle::Tensor rows = Rows(numbers);
  rows.lod() = {{0, numbers.size()}};  // one sentence
  const coracle::Tensor& path = net_.Run(scope_, {rows})[0];
  Sentence sentence;
  for (size_t k = 0; k < words.size(); ++k) {
    const auto tag = static_cast<size_t>(path.data<int64_t>()[k]);
    sentence.push_back({words[k], AllTags().at(tag)});
  }
  return sentence;
}
