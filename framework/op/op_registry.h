#pragma once
// OpRegistry: op types by name.

#include <coracle/framework/base/version.h>
#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_def.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace coracle {

class OpRegistry {
 public:
  // Throws kAlreadyExists for a type that is already registered, and InternalError for an
  // inconsistent declaration (no doc, a slot declared twice, neither gradient nor reason).
  void Add(OpDef def);
  void Add(OpSpec spec);  // takes a spec from another registry

  const OpSpec* Find(std::string_view type) const;  // nullptr if unknown
  const OpSpec& Get(std::string_view type) const;   // throws kNotFound with the nearest name
  std::vector<std::string> Types() const;           // sorted

 private:
  // The keys point into the values.
  std::unordered_map<std::string_view, std::unique_ptr<OpSpec>> specs_;
};

// Whether a listing may omit an attr: true if it has the default value that its op declares, or if
// it is undeclared and only selects an implementation (use_cudnn and the like).
bool IsDefaultAttr(const OpRegistry& ops, const OpDesc& op, const NamedAttr& attr);

// A listing for people. It hides attrs with default values (IsDefaultAttr), and outputs that say
// little: those that are an input in place (MeanOut=Mean of batch_norm), and those that only the
// gradient op reads. The output that the op declares first is always shown. The registry must
// outlive the options.
PrintOptions ShortListing(const OpRegistry& ops);

// Verify: finds all problems of a program before any of it runs.

struct VerifyProblem {
  enum class Severity { kNote, kError };
  Severity severity = Severity::kError;
  std::string rule;  // "unknown_op", "missing_slot", "attr_type", "use_before_def", "block_index",
                     // "inner_gradient", "shape", ...; "internal": a shape rule is itself defective
  std::string message;  // one line
  std::string details;  // operands and the like; may be empty
  int block = 0;
  int op = -1;          // -1: not about a single op
  std::string op_type;  // names longer than any real one are cut
  std::string slot;
  std::string var;

  std::string ToString() const;  // "block 0 op 7 (mul) slot X: message"; the message names the var
};

struct VerifyOptions {
  bool infer_shapes = true;
  bool blocks_only = false;  // only check how blocks nest, not their contents
  // Limit for errors, and separately for notes; one more problem counts the rest.
  size_t max_problems = 1000;
};

std::vector<VerifyProblem> Verify(const ProgramDesc& program, const OpRegistry& ops,
                                  const VerifyOptions& options = {});

// Throws one Error whose first line is the first error of the program ("... (and 3 more problems)")
// and whose details list up to 20 errors.
void VerifyOrThrow(const ProgramDesc& program, const OpRegistry& ops,
                   const VerifyOptions& options = {});

// A name as shown in problems: very long ones are cut and end in "...".
std::string BriefName(std::string_view name);

// Checks one op against its OpDef alone (slots, attrs) and appends what it finds to `problems`.
void CheckOp(const OpSpec& def, const OpDesc& op, int block, int index,
             std::vector<VerifyProblem>* problems);

// Ops from a shared object, an *op library*. Its source includes this header and defines
// CoracleRegisterOps. It must not be linked to a libcoracle; it takes Coracle's symbols from the
// program that loads it (CMake: a MODULE that links to coracle::headers). The `coracle` command
// exports them, and so does every program that uses the shared libcoracle; a program that links the
// static libcoracle needs ENABLE_EXPORTS.
//
// Loads the library, which stays loaded until the process ends, and lets it register its ops.
// Throws kNotFound if it cannot be loaded or has no CoracleRegisterOps, and kInvalidArgument,
// before any of its code runs, if it was built against another version or contains a libcoracle.
void LoadOpLibrary(const std::string& path, OpRegistry& ops);

}  // namespace coracle

// An op library exports this function; its name says which version the library was built against.
#define CORACLE_OP_LIBRARY_JOIN(major, minor, patch) CoracleOpLibrary_##major##_##minor##_##patch
#define CORACLE_OP_LIBRARY_NAME(major, minor, patch) CORACLE_OP_LIBRARY_JOIN(major, minor, patch)
extern "C" [[gnu::used, gnu::visibility("default")]] inline void CORACLE_OP_LIBRARY_NAME(
    CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR, CORACLE_VERSION_PATCH)() {}

// The function that an op library defines.
extern "C" [[gnu::visibility("default")]] void CoracleRegisterOps(coracle::OpRegistry& ops);
