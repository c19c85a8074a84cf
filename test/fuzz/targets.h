#pragma once
// The functions that the fuzzers run. Each takes any bytes: an exception, or any sanitizer's
// report, is a defect. The corpus test runs the same functions on the files in corpus/<target>.

#include <string_view>

namespace coracle {

// The binary reader; what it accepts is written and read again, verified with the shape rules of
// all ops, printed and copied for evaluation; what has no problems is differentiated and rewritten
// by the passes.
void FuzzProgramBinary(std::string_view bytes);
// The text reader; what it accepts is written as text and read again, then treated as above.
void FuzzProgramText(std::string_view text);
// Model text with nothing to include; what it accepts is treated as above.
void FuzzModelText(std::string_view text);
// A program of registered ops: the bytes choose types, slots, shapes and attrs, most of them in the
// ranges that the ops declare. Treated as above; the shape rules run in exact contexts too.
void FuzzOps(std::string_view bytes);
// The first byte chooses: a network's text of Caffe, a solver's, or a .caffemodel.
void FuzzCaffe(std::string_view bytes);
// The words of a command line, a line each; it is run in a directory that has files of every kind.
void FuzzCommandLine(std::string_view bytes);
// The first byte chooses a file and the command that reads it, the rest edits the file.
void FuzzFiles(std::string_view bytes);
// Edits a job, which is then trained for two steps.
void FuzzJob(std::string_view bytes);
// A hostile program (see hostile_run.h), which is run: the bytes choose ops, attrs and values.
void FuzzRun(std::string_view bytes);
// The first byte chooses the reader: tensor stream, selected rows, .npy, .safetensors, .npz.
void FuzzTensor(std::string_view bytes);
// An ONNX model, which is imported, treated as any program, and run under small limits.
void FuzzOnnx(std::string_view bytes);
// A program of Paddle 3 as JSON, which is treated as any program, and run under small limits.
void FuzzPir(std::string_view bytes);
// Weights of Caffe.
void FuzzCaffeWeights(std::string_view bytes);
// The bytes of a connection to `coracle serve`: HTTP requests, and bodies of infer requests.
void FuzzServe(std::string_view bytes);
// An LMDB file of Datum messages.
void FuzzImageDatabase(std::string_view bytes);
// The files of a LevelDB: of each the number of its name, its length in two bytes, its contents.
void FuzzLevelDb(std::string_view bytes);
// A csv file, as the source of a job (two bytes choose its options) or as tensors (the second
// is 255).
void FuzzCsv(std::string_view bytes);
// An idx file: plain, maybe compressed, or as a source of images and labels (by the first byte).
void FuzzIdx(std::string_view bytes);
// A picture, in the number of channels that the first byte chooses; 'm': a mean image of Caffe.
void FuzzPicture(std::string_view bytes);
// A text to train on; 'u' makes its vocabulary, 'v' is a file of a vocabulary, 'w' a list of words,
// 'b' byte pairs (merges, tokens and a text).
void FuzzTexts(std::string_view bytes);
// The text of a job, which is not run.
void FuzzJobText(std::string_view text);
// A description of preprocessing.
void FuzzPreprocess(std::string_view text);
// Raw rows, pictures and texts for a model that the first byte chooses; the second chooses the type
// of the body. The readers of `coracle predict` get the same bytes.
void FuzzPredict(std::string_view bytes);
// JSON: tensors (first byte 't'), the log of a run ('l'), a trace ('r'), or any.
void FuzzJson(std::string_view bytes);
// A file of a snapshot, by the first byte; the manifest agrees with it.
void FuzzSnapshot(std::string_view bytes);
// A program, binary or text, which is exported as ONNX and imported again; 'r' first: a program of
// registered ops, drawn from the bytes.
void FuzzOnnxExport(std::string_view bytes);
// Calls of the C++ interface, which the bytes choose: see api_sequences.h.
void FuzzApi(std::string_view bytes);

}  // namespace coracle
