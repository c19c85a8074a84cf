// Targets that run the command itself: hostile words, hostile files, hostile jobs.

#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/test/fuzz/command_targets.h>
#include <coracle/test/fuzz/seal_manifest.h>
#include <coracle/test/fuzz/targets.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace coracle {
namespace {

using Words = std::vector<std::string>;

// --- words ---

bool IsCount(const std::string& flag) {
  static constexpr std::array<const char*, 9> kCounts = {
      "repeat",     "iterations", "length",      "max_iter",         "epochs",
      "directions", "batch_size", "max_seconds", "snapshot_interval"};
  return std::any_of(kCounts.begin(), kCounts.end(),
                     [&](const char* name) { return flag.find(name) != flag.npos; });
}

// Flags that a user may give and the fuzzer must not: files outside the sandbox, other code,
// messages into files, work without end.
std::string Tamed(std::string word, const std::string& before) {
  if (word.find("op_library") != word.npos || word.find("logtostderr") != word.npos) return "x";
  for (size_t at; (at = word.find("..")) != word.npos;) word.replace(at, 2, "_");
  const size_t value = word.find('=') + 1;  // 0 when there is none
  while (value < word.size() && word[value] == '/') word.erase(value, 1);
  while (!word.empty() && word[0] == '/') word.erase(0, 1);
  if (IsCount(word) || IsCount(before)) {
    const size_t digits = word.find_first_of("123456789");
    if (digits != word.npos) word.resize(std::min(word.size(), digits + 1));
  }
  return word;
}

Words WordsOf(std::string_view bytes) {
  Words words;
  for (std::string& word : Split(bytes.substr(0, 2000), '\n')) {
    word.erase(std::remove(word.begin(), word.end(), '\0'), word.end());  // no shell passes it
    words.push_back(Tamed(std::move(word), words.empty() ? "" : words.back()));
  }
  return words;
}

// --- files ---

// Each edit is a place (two bytes, as a part of the file), a kind and a length, and what
// is put there.
std::string Edited(std::string file, std::string_view edits) {
  while (edits.size() >= 4) {
    const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(edits[i])); };
    const size_t at = (byte(0) << 8 | byte(1)) * (file.size() + 1) >> 16;
    const size_t length = std::min<size_t>(byte(3) % 16, edits.size() - 4);
    const std::string_view text = edits.substr(4, length);
    switch (byte(2) % 5) {
      case 0:
        file.insert(at, text);
        break;
      case 1:
        file.erase(at, length * length);
        break;
      case 2:
        file.resize(at);
        break;
      case 3:  // a piece of the file once more
        file.insert(at, file.substr(at / 2, length * 8));
        break;
      default:
        file.replace(at, text.size(), text);
    }
    edits.remove_prefix(4 + length);
  }
  return file;
}

constexpr const char* kSnapshot = "run/snapshots/step_00000003/";

struct FileUse {
  const char* file;
  Words words;
  bool text = true;  // prints for people alone
};

const std::vector<FileUse>& FileUses() {
  const std::string limits = "--memory_limit=200M";
  static const std::vector<FileUse> uses = {
      {"run/log.jsonl", {"plot", "run", "--out=o.svg"}},
      {"run/log.jsonl", {"plot", "run", "--out=l.svg", "--log_scale"}},
      {"run/vocabulary.json", {"generate", "run", "--length=3", limits}, false},
      {"run/model.pdmodel", {"generate", "run", "--prompt=a", "--length=3", limits}, false},
      {"run/model.pdiparams", {"generate", "run", "--prompt=a", "--length=3", limits}, false},
      {"run/eval.pdmodel", {"test", "run", "job.pbtxt", limits}},
      {"run/eval.pdiparams", {"test", "run", "job.pbtxt", limits}},
      {"job.pbtxt", {"test", "run", "job.pbtxt", limits}},
      {"run/snapshots/step_00000003/manifest.json", {"snapshot", "run"}},
      {"run/snapshots/step_00000003/main.pb", {"snapshot", "run"}},
      {"run/snapshots/step_00000003/startup.pb", {"snapshot", "run", "run"}},
      {"run/snapshots/step_00000003/state.pdiparams", {"snapshot", "run"}},
      {"run/snapshots/step_00000003/carried.npz", {"snapshot", "run"}},
      {"run/snapshots/LATEST", {"snapshot", "run"}},
      {"run/snapshots/step_00000003/main.pb", {"train", "job.pbtxt", "--out=run", "--resume"}},
      {"train.pb", {"convert", "train.pb", "o.pbtxt"}},
      {"train.pb", {"dump", "train.pb"}},
      {"train.pb", {"check", "train.pb"}},
      {"train.pb", {"summary", "train.pb"}},
      {"main.pb", {"backward", "main.pb", "--loss=loss", "--out=o.pb"}},
      {"main.pb", {"explain-gradient", "main.pb", "--of=loss", "--wrt=fc_0.w_0"}},
      {"main.pb", {"check-grad", "main.pb", "--loss=loss"}},
      {"params", {"run", "train.pb", "--params=params", "--feed=in.npz", "--fetch=loss", limits}},
      {"in.npz", {"run", "train.pb", "--params=params", "--feed=in.npz", "--fetch=loss", limits}},
      {"train.pb", {"run", "train.pb", "--params=params", "--feed=in.npz", "--fetch=loss", limits}},
      {"model.pbtxt", {"build", "model.pbtxt", "--out=o.pb"}},
      {"model.pbtxt", {"time", "model.pbtxt", "--iterations=1", "--batch_size=2", limits}},
      {"in.csv", {"run", "main.pb", "--params=params", "--feed=in.csv", "--fetch=h", limits}},
      {"in.json", {"run", "main.pb", "--params=params", "--feed=in.json", "--fetch=h", limits}},
      {"in.csv", {"compare", "in.csv", "in.json"}},
      {"in.json", {"compare", "in.npz", "in.json"}},
      {"in.json", {"compare", "in.json", "in.npz", "--json"}, false},
      {"trace.json", {"view", "train.pb", "--out=o.html", "--times=trace.json", "--nomemory"}},
      {"values.npz",
       {"compare", "main.pb", "--params=params", "--feed=in.npz", "--with=values.npz", limits}},
      {"main.pb", {"compare", "main.pb", "--params=params", "--feed=in.npz", limits}},
      {"train.pb", {"diff", "main.pb", "train.pb"}},
      {"train.pb", {"diff", "train.pb", "main.pb", "--json"}, false},
      {"main.pb", {"merge", "main.pb", "train.pb", "--connect=loss:x", "--out=o.pb", limits}},
      {"train.pb", {"view", "main.pb", "train.pb", "--out=o.html", limits}},
      {"train.pb", {"graph", "train.pb"}},
      {"train.pb", {"opt", "train.pb", "--explain", "--out=o.pb", limits}},
      {"train.pb", {"extract", "train.pb", "--outputs=h", "--out=o.pb", limits}},
      {"train.pb", {"rename", "train.pb", "x=input,h=hidden", "--gradients", "--out=o.pb", limits}},
      {"train.pb", {"set-shape", "train.pb", "x:4x3", "--out=o.pb", limits}},
      {"train.pb", {"convert", "train.pb", "o.pbtxt", "--compat=paddle"}},
      {"params", {"split-params", "main.pb", "--params=params", "--out=o", limits}},
      {"main.pb", {"bench", "main.pb", "--batch_size=2", "--seconds=0.01", limits}},
  };
  return uses;
}

// Checks what the command did, and puts the files back.
CommandResult RunIn(Sandbox& sandbox, const Words& words, bool text) {
  CommandResult result = sandbox.Run(words);
  CheckResult(result, words, text);
  sandbox.Restore();
  return result;
}

}  // namespace

CommandResult RunFuzzedCommandLine(std::string_view bytes) {
  Sandbox& sandbox = Sandbox::Get();
  const Words words = WordsOf(bytes);
  const bool text = std::none_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "generate" || word.ends_with("-");
  });
  return RunIn(sandbox, words, text);
}

CommandResult RunOnFuzzedFile(std::string_view bytes) {
  Sandbox& sandbox = Sandbox::Get();
  const auto first = static_cast<uint8_t>(bytes[0]);
  const FileUse& use = FileUses()[first % FileUses().size()];
  const std::string contents = Edited(sandbox.Original(use.file), bytes.substr(1));
  WriteFileAtomic(use.file, contents);
  // One in five is as an accident would leave it.
  if (std::string_view(use.file).starts_with(kSnapshot) && first % 5 > 0)
    SealManifest(kSnapshot, use.file + std::strlen(kSnapshot), contents);
  return RunIn(sandbox, use.words, use.text);
}

CommandResult RunFuzzedJob(std::string_view bytes) {
  Sandbox& sandbox = Sandbox::Get();
  const std::string job = Edited(sandbox.Original("job.pbtxt"), bytes);
  if (job.find("snapshot_dir") != job.npos) return {};  // it may lie anywhere
  WriteFileAtomic("job.pbtxt", job);
  const Words words = {"train",       "job.pbtxt",           "--out=o",        "--max_iter=2",
                       "--threads=1", "--memory_limit=200M", "--max_seconds=2"};
  return RunIn(sandbox, words, true);
}

void FuzzCommandLine(std::string_view bytes) { RunFuzzedCommandLine(bytes); }

void FuzzFiles(std::string_view bytes) {
  if (!bytes.empty()) RunOnFuzzedFile(bytes);
}

void FuzzJob(std::string_view bytes) { RunFuzzedJob(bytes); }

}  // namespace coracle
