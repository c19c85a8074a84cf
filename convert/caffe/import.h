#pragma once
// Converts Caffe's networks to model text, its solvers to job text, and its weights to parameters.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/convert/caffe/text.h>
#include <coracle/convert/caffe/weights.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>

#include <map>
#include <string>
#include <vector>

namespace coracle::caffe {

struct ImportOptions {
  // Dims of fed blobs without the batch, if the text lacks them.
  std::map<std::string, Dims> shapes = {};
  std::vector<std::string> stages = {};  // stages for the rules of a net, in addition to the phase
  std::string data_dir = {};             // directory in which data files are searched
  // Data that replaces a database: files by "train" and "test".
  std::map<std::string, std::string> data = {};
  std::vector<std::string> weights = {};  // replace those named in a solver's text
};

// A network as model text.
struct ImportedNet {
  std::string text;
  WrittenNet train, test;                 // the net in the two phases
  std::vector<WrittenNet> further_tests;  // for a solver with several test nets
  std::string loss;                       // the objective; "" for a net without losses
  std::vector<std::string> notes;         // for the user
};

// Merges the layers of both phases into one text: a layer of one phase only gets an include_if.
ImportedNet ImportNet(const Net& net, const ImportOptions& options);
ImportedNet ImportNetFile(const std::string& path, const ImportOptions& options);

// A net in one of the states of a solver.
struct NetInState {
  const Net* net = nullptr;
  proto::caffe::NetState state = {};
  std::string stage = {};  // for one of several tests: its name in the rules of the text

  std::vector<Layer> Layers() const { return LayersOf(*net, state); }
};
// Merges the nets of a solver into one text. Layers of a single test have a rule with its stage.
ImportedNet ImportStates(const NetInState& train, const std::vector<NetInState>& tests,
                         const ImportOptions& options);

// A solver and its network as the text of a job.
struct ImportedJob {
  std::string text;
  ImportedNet net;
  std::vector<std::string> weights;  // .caffemodel files with initial values
  std::vector<std::string> missing;  // databases that the job names but that do not exist
  std::vector<std::string> notes;
};
// `npz` is the name in the job of the file with initial values (StartValues), if it starts from
// weights; "": it is not named. Throws kNotFound for missing weights.
ImportedJob ImportSolver(const std::string& path, const ImportOptions& options,
                         const std::string& npz);
// Like ImportSolver, for the text of a solver. Files named in it are searched around `path`.
ImportedJob ImportSolverText(std::string_view text, const std::string& path,
                             const ImportOptions& options, const std::string& npz);

// Whether a file is a solver's text.
bool IsSolverFile(const std::string& path);

// The values of a net's parameters, by their names in the model text. Blobs are moved out of
// `weights`. Throws for a wrong shape. Parameters without a layer in the file are left out;
// *missing has their names.
NamedTensors ParameterValues(const std::vector<ParamSource>& params, CaffeWeights& weights,
                             std::vector<std::string>* missing, std::vector<std::string>* notes);

// The initial values of a net: the parameters of all its states, from .caffemodel files of which
// later ones take precedence. Throws kInvalidArgument if none of their layers belongs to the net.
// *missing has the names of parameters that no file has.
NamedTensors StartValues(const ImportedNet& net, const std::vector<std::string>& files,
                         std::vector<std::string>* missing, std::vector<std::string>* notes);

// Additional outputs of a net for inference, besides the blobs that no layer reads: the inputs of
// its losses that are compared with targets; classes as `prob`.
struct NetInUse {
  std::vector<std::string> entries;  // entries to add to the net's model text
  std::vector<std::string> outputs;
};
NetInUse ResultsInUse(const WrittenNet& net, const std::string& text);
// The `inputs` that the outputs depend on.
std::vector<std::string> NeededInputs(const ProgramDesc& program, std::vector<std::string> inputs,
                                      const std::vector<std::string>& outputs);

// Saves the net of the phase TEST with its weights as PREFIX.pdmodel and PREFIX.pdiparams, from the
// fed blobs to the blobs that no layer reads and the results of its losses.
void SaveInferenceNet(const Net& net, const ImportOptions& options, CaffeWeights weights,
                      const std::string& prefix, std::vector<std::string>* notes);

}  // namespace coracle::caffe
