#pragma once
// A directory with files of every kind that the command reads, and the command run in it.

#include <string>
#include <vector>

namespace coracle {

struct CommandResult {
  int code = 0;
  std::string text;  // standard output and standard error
};

class Sandbox {
 public:
  // One for a process, in a temporary directory, which becomes the current one: a trained text
  // model in run/ with its log and snapshot, its job in job.pbtxt, programs, parameters and feeds.
  static Sandbox& Get();
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  // All its files, from the directory on.
  const std::vector<std::string>& files() const { return files_; }
  const std::string& Original(const std::string& file) const;
  // Puts back what a command has changed or added.
  void Restore();
  // Runs a command line in this process, as a shell would.
  CommandResult Run(const std::vector<std::string>& words);

 private:
  Sandbox();
  void Make();

  std::string path_;
  std::vector<std::string> files_, originals_;
};

// Throws std::logic_error for a result that shows a defect: an internal error, another exception
// than Error, an error of more than its lines, or text that could act on a terminal (`text`: what
// is printed is meant for people).
void CheckResult(const CommandResult& result, const std::vector<std::string>& words, bool text);

}  // namespace coracle
