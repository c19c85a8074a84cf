// Gives fuzz targets random bytes without libFuzzer: see docs/fuzzing.md.

#include <coracle/framework/base/file.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/test/fuzz/target_table.h>
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

DEFINE_string(target, "", "name of a target: see target_table.h");
DEFINE_string(corpus, "", "directory of seeds, which are joined and changed");
DEFINE_string(dictionary, "", "words in libFuzzer's form that the changes use");
DEFINE_uint64(count, 1000000, "how many inputs");
DEFINE_uint64(first, 1, "seed of the first input; the others follow");
DEFINE_double(duration, 60, "stop after so many seconds");
DEFINE_int32(timeout, 20, "seconds of processor time for one input");
DEFINE_bool(show, false, "print the inputs");

namespace coracle {
namespace {

using Target = void (*)(std::string_view);

Target FindTarget(const std::string& name) {
  for (const FuzzTarget& target : kFuzzTargets) {
    if (name == target.name) return target.run;
  }
  return nullptr;
}

// The words of a dictionary of libFuzzer: "..." with the escapes \\, \" and \xAB.
std::vector<std::string> ReadDictionary(const std::string& path) {
  std::vector<std::string> words;
  for (const std::string& line : Split(ReadFile(path), '\n')) {
    const size_t begin = line.find('"'), end = line.rfind('"');
    if (line.starts_with('#') || begin >= end) continue;
    std::string word;
    for (size_t i = begin + 1; i < end; ++i) {
      const bool hex = line[i] == '\\' && line[i + 1] == 'x' && i + 3 < end;
      if (hex)
        word += static_cast<char>(std::stoi(line.substr(i + 2, 2), nullptr, 16)), i += 3;
      else
        word += line[i] == '\\' ? line[++i] : line[i];
    }
    words.push_back(word);
  }
  return words;
}

// Pieces that break what reads them more often than random bytes do.
std::vector<std::string> HostilePieces() {
  return {"\033[2J",
          "\u009b2J",
          "\u202e",
          "\x9b",
          std::string(1, '\0'),
          "\n",
          "\r",
          "'",
          "\"",
          "{",
          "}",
          "[",
          "]",
          "-1",
          "9223372036854775807",
          "-9223372036854775808",
          "1e309",
          "nan",
          "-inf",
          "0",
          "4294967296",
          "%s%n",
          "\\",
          ":",
          ",",
          "=",
          "--",
          "../",
          "(a*)*",
          std::string(5000, 'a'),
          std::string(300, '['),
          "true",
          "null",
          "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
          "step",
          "loss",
          "x"};
}

// These, and as many words of the dictionary as there are.
const std::vector<std::string>& Pieces() {
  static const std::vector<std::string> pieces = [] {
    std::vector<std::string> all = HostilePieces();
    if (FLAGS_dictionary.empty()) return all;
    for (std::string& word : ReadDictionary(FLAGS_dictionary)) all.push_back(std::move(word));
    return all;
  }();
  return pieces;
}

class Inputs {
 public:
  Inputs() {
    if (FLAGS_corpus.empty()) return;
    for (const auto& entry : std::filesystem::directory_iterator(FLAGS_corpus))
      corpus_.push_back(ReadFile(entry.path().string()));
    std::sort(corpus_.begin(), corpus_.end());
  }

  std::string Make(uint64_t seed) {
    random_.seed(seed);
    std::string input = corpus_.empty() ? "" : corpus_[Below(corpus_.size())];
    if (corpus_.empty()) input += static_cast<char>(Below(256));
    for (size_t edits = 1 + Below(6); edits > 0; --edits) Edit(&input);
    return input;
  }

 private:
  size_t Below(size_t n) { return static_cast<size_t>(random_() % n); }

  // Replaces a value, the text from "=" to the end of its line, by a piece.
  bool ReplaceValue(std::string* input) {
    const size_t equals = input->find('=', Below(input->size() + 1));
    if (equals == std::string::npos) return false;
    const size_t end = std::min(input->find('\n', equals), input->size());
    input->replace(equals + 1, end - equals - 1, Pieces()[Below(Pieces().size())]);
    return true;
  }

  // Changes a bit, a byte or a number of the input in place, so that lengths before it still hold.
  void ChangeBytes(std::string* input) {
    const size_t at = Below(input->size());
    switch (Below(4)) {
      case 0:
        (*input)[at] = static_cast<char>((*input)[at] ^ 1 << Below(8));
        return;
      case 1:
        (*input)[at] = static_cast<char>((*input)[at] + (Below(2) == 0 ? 1 : -1));
        return;
      case 2:
        (*input)[at] = static_cast<char>(Below(4) == 0 ? 0xff : Below(256));
        return;
      default: {
        const std::string& piece = Pieces()[Below(Pieces().size())];
        input->replace(at, piece.size(), piece);
      }
    }
  }

  void Edit(std::string* input) {
    if (!corpus_.empty() && Below(2) == 0 && ReplaceValue(input)) return;
    if (!corpus_.empty() && !input->empty() && Below(2) == 0) return ChangeBytes(input);
    const size_t at = corpus_.empty() ? input->size() : Below(input->size() + 1);
    std::string text;
    switch (Below(5)) {
      case 0:
        for (size_t n = 1 + Below(12); n > 0; --n) text += static_cast<char>(Below(256));
        break;
      case 1:
        if (!corpus_.empty()) return (void)input->erase(at, Below(20));
        [[fallthrough]];
      case 2:
        if (!corpus_.empty()) {
          const std::string& other = corpus_[Below(corpus_.size())];
          const size_t begin = Below(other.size() + 1);
          text = other.substr(begin, Below(60));
          break;
        }
        [[fallthrough]];
      default:
        text = Pieces()[Below(Pieces().size())];
    }
    // Targets that edit a file take a place, a kind and a length before the text.
    if (corpus_.empty()) {
      const std::string head = {static_cast<char>(Below(256)), static_cast<char>(Below(256)),
                                static_cast<char>(Below(256)),
                                static_cast<char>(std::min<size_t>(text.size(), 15))};
      text = head + text.substr(0, 15);
    }
    input->insert(at, text);
  }

  std::vector<std::string> corpus_;
  std::mt19937_64 random_;
};

// Ends the process after that time of the processor, or a hundred times as long: at a low priority,
// others may have the processor for minutes.
void LimitTime(int seconds) {
  const itimerval limit = {.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
  ::setitimer(ITIMER_PROF, &limit, nullptr);
  ::alarm(static_cast<unsigned>(seconds) * 100);
}

// In a process of its own: 0, or how it ended.
int RunApart(Target target, Inputs& inputs, uint64_t first, uint64_t count) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    for (uint64_t k = 0; k < count; ++k) {
      LimitTime(FLAGS_timeout);
      const std::string input = inputs.Make(first + k);
      if (FLAGS_show) fmt::print(stderr, "{}\n", Printable(input));
      try {
        target(input);
      } catch (const std::exception& e) {
        fmt::print(stderr, "seed {}: {}\n", first + k, Printable(e.what()));
        std::exit(1);
      }
    }
    std::exit(0);  // so that what was made is removed
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int Main() {
  const Target target = FindTarget(FLAGS_target);
  if (!target) {
    fmt::print(stderr, "--target is one of target_table.h\n");
    return 2;
  }
  Inputs inputs;
  constexpr uint64_t kBatch = 200;
  const auto begin = std::chrono::steady_clock::now();
  uint64_t done = 0, findings = 0;
  while (done < FLAGS_count) {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (time.count() > FLAGS_duration) break;
    const uint64_t first = FLAGS_first + done, count = std::min(kBatch, FLAGS_count - done);
    done += count;
    if (RunApart(target, inputs, first, count) == 0) continue;
    for (uint64_t k = 0; k < count; ++k) {
      const int end = RunApart(target, inputs, first + k, 1);
      if (end == 0) continue;
      ++findings;
      fmt::print("seed {} ends with {}; to repeat: --target={} --first={} --count=1 --show\n",
                 first + k, end, FLAGS_target, first + k);
    }
  }
  fmt::print("{}: {} inputs, {} findings\n", FLAGS_target, done, findings);
  return findings > 0 ? 1 : 0;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  coracle::SetNumThreads(1);
  return coracle::Main();
}
