#pragma once
// Tensors as files: Paddle's LoDTensor and SelectedRows streams and the parameter files
// made of them.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

// Programs as files: Paddle's binary ProgramDesc and protobuf text. Reading is safe on any bytes:
// bad bytes cause one Error that says what is wrong and where, never a crash or an allocation out
// of proportion to the file.

inline constexpr uint64_t kMaxProgramBytes = uint64_t{1} << 30;

// Binary. Writing a program that was read from a file of Paddle gives the same bytes.
ProgramDesc ParseProgram(std::string_view bytes, const std::string& source = "program");
std::string SerializeProgram(const ProgramDesc& program);

// Protobuf text of framework.proto. Errors say source:line:column.
ProgramDesc ParseProgramText(std::string_view text, const std::string& source = "program");
std::string ProgramToText(const ProgramDesc& program);

// Reads a file, or standard input for "-". The program is text if the name ends in .pbtxt or .txt
// or the contents look like text, else binary.
ProgramDesc ReadProgram(const std::string& path);
// Writes text if the name ends in .pbtxt or .txt; binary if it ends in .pb or .pdmodel or has no
// ending (__model__), and for "-", standard output. Throws kInvalidArgument for any other
// ending. Atomic.
void WriteProgram(const ProgramDesc& program, const std::string& path);
// Whether WriteProgram accepts the file name.
bool IsProgramFileName(const std::string& path);
// Whether `bytes` look like protobuf text rather than a binary message.
bool LooksLikeText(std::string_view bytes);

// Reads one value of `bytes` at *offset and moves *offset past it. Every count is checked against
// the number of bytes left before anything is allocated. `source` names the file in errors.
Tensor ParseTensor(std::string_view bytes, size_t* offset, const std::string& source);
SelectedRows ParseSelectedRows(std::string_view bytes, size_t* offset, const std::string& source);
void AppendTensor(const Tensor& tensor, std::string* bytes);
void AppendSelectedRows(const SelectedRows& rows, std::string* bytes);

// Names of the variables that parameter files hold: persistable and of a type that can be saved,
// sorted by bytes.
std::vector<std::string> PersistableNames(const ProgramDesc& program);

// .pdiparams: the streams of the variables `names` in the given order (PersistableNames in Paddle's
// files); the file does not contain the names.
void SaveCombined(const Scope& scope, const std::vector<std::string>& names,
                  const std::string& path);
// Checks the dtype and dims of each tensor against its VarDesc, so that an error names the first
// variable that does not match the file. Bytes left over are an error too.
void LoadCombined(const ProgramDesc& program, const std::vector<std::string>& names,
                  const std::string& path, Scope& scope);
// One file per variable in a directory.
void SaveSeparate(const Scope& scope, const std::vector<std::string>& names,
                  const std::string& directory);
void LoadSeparate(const ProgramDesc& program, const std::vector<std::string>& names,
                  const std::string& directory, Scope& scope);
// `path` is a directory (with one file per variable, or with __params__), a combined file or
// an archive.
void LoadParameters(const ProgramDesc& program, const std::string& path, Scope& scope);

struct InferenceModel {
  ProgramDesc program;  // with its feed and fetch ops
  std::vector<std::string> feed_names;
  std::vector<std::string> fetch_names;
};

enum class InferenceLayout {
  kPdmodel,        // PATH.pdmodel and PATH.pdiparams
  kModelCombined,  // PATH/__model__ and PATH/__params__
  kModelSeparate,  // PATH/__model__ and one file per variable
};

// Prunes a copy of `program` to the fetches, sets is_test, adds feed and fetch ops, and writes the
// copy with its persistables.
void SaveInferenceModel(const std::string& path, const std::vector<std::string>& feeds,
                        const std::vector<std::string>& fetches, const ProgramDesc& program,
                        const Scope& scope, InferenceLayout layout = InferenceLayout::kPdmodel);
// `path` is a directory with __model__ (or inference.pdmodel), a .pdmodel file, or its prefix. In a
// program that links the convert library and has called RegisterOnnxReader and RegisterPirReader,
// also an .onnx file, and a model of Paddle 3: inference.json, or the directory that holds it.
InferenceModel LoadInferenceModel(const std::string& path, Scope& scope);

// NumPy's .npy (format 1.0 to 3.0) and .npz files: all dtypes of Tensor (bfloat16 is written as
// float32), C and Fortran order, stored and deflated archives. Format: numpy/lib/format.py's
// description; ZIP: PKWARE's APPNOTE.

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Returns the tensor of an .npy file's bytes; `source` names the file in errors. Throws Error:
// kDataLoss for damaged or truncated bytes, kUnimplemented for element types other than plain
// numbers, kOutOfRange for a uint64 beyond int64 (unsigned types widen to the next signed one).
Tensor ParseNpy(std::string_view bytes, const std::string& source);
std::string SerializeNpy(const Tensor& tensor);
Tensor ReadNpy(const std::string& path);
void WriteNpy(const Tensor& tensor, const std::string& path);

// Returns the tensors of an .npz archive's bytes, in the archive's order, with names without
// ".npy". The offsets of level k of the LoD of x are an integer array named "x@LOD@k": WriteNpz
// writes these arrays, and the readers attach them to their tensor. Throws as ParseNpy does, and
// kDataLoss for a damaged archive. Throws kInvalidArgument (as does WriteNpz) if the offsets are
// not valid for x, or if x is missing.
NamedTensors ParseNpz(std::string_view bytes, const std::string& source);
NamedTensors ReadNpz(const std::string& path);
void WriteNpz(const NamedTensors& tensors, const std::string& path, bool compressed = false);

// --- safetensors files, and functions that accept either safetensors or npz files ---
// Format: the safetensors project's description (a length of 8 bytes, a header
// of JSON with dtype, shape and place of each tensor, the elements).

// Returns the tensors in the order of their elements in the file and ignores __metadata__. U16, U32
// and U64 widen as in npy files. LoD is kept as in npz files. Throws Error: kDataLoss for damaged
// or truncated bytes and for elements that overlap or leave gaps, kUnimplemented for element types
// without a dtype (floats of 8 bits and less), kOutOfRange for a U64 beyond int64, and the errors
// of ParseNpz for LoD. Every number is checked before memory is allocated.
NamedTensors ParseSafetensors(std::string_view bytes, const std::string& source);
// Reads a file, with the elements going straight into the tensors.
NamedTensors ReadSafetensors(const std::string& path);

// Atomic; writes to standard output for "-". The elements are ordered by the size of their type, so
// that each is aligned. Throws kInvalidArgument for a name that is used twice, is not UTF-8 or is
// "__metadata__", and for complex128, which the format lacks.
void WriteSafetensors(const NamedTensors& tensors, const std::string& path);

// Whether the bytes begin like a safetensors file.
bool LooksLikeSafetensors(std::string_view bytes);

// Whether the name ends in .safetensors or .npz. The functions below accept both formats.
bool IsTensorArchive(const std::string& path);
// Reads npz if the name ends in .npz, else safetensors. Writes safetensors if the name ends in
// .safetensors, else npz (as for "-").
NamedTensors ReadTensorArchive(const std::string& path);
void WriteTensorArchive(const NamedTensors& tensors, const std::string& path);

// Writes the variables `names` as an archive if IsTensorArchive(path), else as SaveCombined does.
// LoadParameters reads both; an archive may hold further tensors.
void SaveParameters(const Scope& scope, const std::vector<std::string>& names,
                    const std::string& path);

}  // namespace coracle
