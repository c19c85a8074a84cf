#pragma once
// Caffe's networks as model text, its solvers as job text, its weights as parameters.

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
  // Dims of fed blobs without the batch, where the text does not have them.
  std::map<std::string, Dims> shapes = {};
  std::vector<std::string> stages = {};  // what the rules of a net see beside the phase
  std::string data_dir = {};             // where data files are looked for
  // Data in place of a database: files by "train" and "test".
  std::map<std::string, std::string> data = {};
  std::vector<std::string> weights = {};  // in place of those that a solver's text names
};

// A network as model text.
struct ImportedNet {
  std::string text;
  WrittenNet train, test;                 // what it is in the two phases
  std::vector<WrittenNet> further_tests;  // of a solver with several test nets
  std::string loss;                       // the objective; "" for a net without losses
  std::vector<std::string> notes;         // for the user
};

// The layers of both phases become one text: a layer that only one of them has gets an include_if.
ImportedNet ImportNet(const Net& net, const ImportOptions& options);
ImportedNet ImportNetFile(const std::string& path, const ImportOptions& options);

// A net in one of the states of a solver.
struct NetInState {
  const Net* net = nullptr;
  proto::caffe::NetState state = {};
  std::string stage = {};  // of one of several tests: what the rules of the text call it

  std::vector<Layer> Layers() const { return LayersOf(*net, state); }
};
// The nets of a solver as one text. Layers of one test alone have a rule with its stage.
ImportedNet ImportStates(const NetInState& train, const std::vector<NetInState>& tests,
                         const ImportOptions& options);

// A solver and its network as the text of a job.
struct ImportedJob {
  std::string text;
  ImportedNet net;
  std::vector<std::string> weights;  // .caffemodel files that it starts from
  std::vector<std::string> missing;  // databases that the job names and that are not there
  std::vector<std::string> notes;
};
// `npz`: what a job that starts from weights calls the file of their values (StartValues); "": such
// a job does not name it. Throws kNotFound for weights that are not there.
ImportedJob ImportSolver(const std::string& path, const ImportOptions& options,
                         const std::string& npz);
// The same of a text; files that it names are looked for around `path`.
ImportedJob ImportSolverText(std::string_view text, const std::string& path,
                             const ImportOptions& options, const std::string& npz);

// Whether a file is a solver's text.
bool IsSolverFile(const std::string& path);

// The values of a net's parameters, by the names of the model text. Blobs are taken out of
// `weights`. Throws for a shape that does not fit. What the file has no layer for is left out;
// *missing has its names.
NamedTensors ParameterValues(const std::vector<ParamSource>& params, CaffeWeights& weights,
                             std::vector<std::string>* missing, std::vector<std::string>* notes);

// What a net starts from: the parameters of all its states, of .caffemodel files of which the later
// ones win. Throws kInvalidArgument where none of their layers is the net's. *missing has the names
// of parameters that no file has.
NamedTensors StartValues(const ImportedNet& net, const std::vector<std::string>& files,
                         std::vector<std::string>* missing, std::vector<std::string>* notes);

// What a net gives in use, beside the blobs that no layer reads: of its losses what they compare
// with their targets, of classes as `prob`.
struct NetInUse {
  std::vector<std::string> entries;  // of model text, to add to that of the net
  std::vector<std::string> outputs;
};
NetInUse ResultsInUse(const WrittenNet& net, const std::string& text);
// Those of `inputs` that the outputs need.
std::vector<std::string> NeededInputs(const ProgramDesc& program, std::vector<std::string> inputs,
                                      const std::vector<std::string>& outputs);

// The net of the phase TEST with its weights as PREFIX.pdmodel and PREFIX.pdiparams, from the blobs
// that are fed to those that no layer reads and the results of its losses.
void SaveInferenceNet(const Net& net, const ImportOptions& options, CaffeWeights weights,
                      const std::string& prefix, std::vector<std::string>* notes);

}  // namespace coracle::caffe
