#pragma once
// The state that the calls of a sequence work on, and what they draw from.

#include <coracle/convert.h>
#include <coracle/test/fuzz/api_sequences.h>
#include <coracle/test/fuzz/choices.h>
#include <coracle/train.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coracle::api {

struct Failed {
  std::string what;
};

// Two nets, so that handles of one can be given to the other.
struct Net {
  ProgramDesc main, startup;
  std::vector<std::string> names;  // of variables that were made
};

class Sequence {
 public:
  Sequence(Choices choose, std::string directory, ApiCounts* counts);
  void Run();
  std::string History() const;

  // Calls f. An edit of the current net must change nothing where it is refused.
  enum class Edits { kNo, kPrograms };
  bool Try(const std::string& name, const std::function<void()>& f, Edits edits = Edits::kNo);
  bool TryEdit(const std::string& name, const std::function<void()>& f) {
    return Try(name, f, Edits::kPrograms);
  }

  Net& net() { return nets[which]; }
  ProgramDesc& main() { return net().main; }
  ProgramDesc& startup() { return net().startup; }

  // --- arguments, of which some are wrong ---
  std::string AnyName();
  Variable AnyVariable();
  std::vector<Variable> AnyVariables(size_t most);
  std::vector<std::string> AnyNames(size_t most);
  Shape AnyShape();
  DType AnyDType();
  double AnyNumber();
  Tensor AnyTensor();
  std::string AnyOpType();
  Attribute AnyAttribute();
  ErrorClip AnyErrorClip();
  std::optional<Setting> AnyClip();
  std::string AnyFile() { return directory + "/" + choose.Of(kFiles); }
  // Notes the names of new variables of the root block.
  void NoteNames();

  Choices choose;
  const std::string directory;
  Net nets[2];
  size_t which = 0;
  Scope scopes[2];
  std::vector<PreparedProgram> prepared;
  std::vector<Tensor> tensors;

 private:
  static constexpr const char* kFiles[] = {"a.npz", "b.npy",         "c.pdmodel",  "d.txt",
                                           "e",     "f.safetensors", "none/g.npz", "."};
  ApiCounts* counts_;
  std::string history_;
};

// Each makes one random call.
void CallBuilder(Sequence& s);
void CallFormula(Sequence& s);
void CallControlFlow(Sequence& s);
void EditByHand(Sequence& s);
void CallEdit(Sequence& s);
void CallBackward(Sequence& s);
void CallOptimizer(Sequence& s);
void CallFiles(Sequence& s);
void CallExecutor(Sequence& s);
void CallInspect(Sequence& s);
void CallData(Sequence& s);
void MoveObjects(Sequence& s);

}  // namespace coracle::api
