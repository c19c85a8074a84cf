// Writes the data of the job, or applies the model that the job has trained.
//
//   tagger --data DIRECTORY              writes train.npz and test.npz there
//   tagger MODEL.pdmodel WORD WORD ...   prints each word with its tag

#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>

#include "tagger.h"

namespace {

void MakeData(const std::string& directory) {
  const Sentences sentences = DrawSentences(4000, 1000, 1);
  std::filesystem::create_directories(directory);
  WriteSentences(sentences.train, directory + "/train.npz");
  WriteSentences(sentences.test, directory + "/test.npz");
  std::printf(
      "%zu words, %zu tags; the most frequent tag of each word is right for %.1f%% of the "
      "words of test.npz\n",
      AllWords().size(), AllTags().size(), 100 * MostFrequentTags(sentences.train, sentences.test));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 3 && std::strcmp(argv[1], "--data") == 0) {
      MakeData(argv[2]);
      return 0;
    }
    if (argc > 2 && argv[1][0] != '-') {
      for (const Word& word : Tagger(argv[1]).Tag({argv + 2, argv + argc}))
        std::printf("%s/%s ", word.text.c_str(), word.tag.c_str());
      std::printf("\n");
      return 0;
    }
    std::fprintf(stderr,
                 "usage: tagger --data DIRECTORY\n"
                 "       tagger MODEL.pdmodel WORD WORD ...\n");
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tagger: %s\n", e.what());
    return 1;
  }
}
