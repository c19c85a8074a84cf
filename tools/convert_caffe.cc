#include <coracle/convert/caffe/data.h>
#include <coracle/convert/caffe/import.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/layer.h>
#include <coracle/tools/convert_caffe.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>
#include <fmt/format.h>

#include <filesystem>
#include <memory>

namespace coracle::tools {
namespace {

namespace fs = std::filesystem;
using caffe::ImportOptions;

ImportOptions OptionsOf(const CaffeFlags& flags) {
  ImportOptions options;
  for (const auto& [name, shape] : ShapesOf(flags.shape)) {
    const std::vector<int64_t> dims = shape.ToVector();
    options.shapes[name] = dims;
  }
  options.stages = flags.stage;
  options.data_dir = flags.data_dir;
  for (const std::string& entry : flags.data) {
    const size_t colon = entry.find(':');
    const std::string part = entry.substr(0, colon);
    if (colon == std::string::npos || (part != "train" && part != "test"))
      throw UsageError("--data must be train:FILE,test:FILE, got " + Quote(entry, 300));
    if (!options.data.emplace(part, entry.substr(colon + 1)).second)
      throw UsageError(fmt::format("--data names two files for {}", part));
  }
  return options;
}

void Tell(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) LogMessage(MessageLevel::kInfo, note);
}

bool IsWeights(const std::string& path) {
  return path.ends_with(".caffemodel") || path.ends_with(".caffemodel.h5");
}

// The file of weights next to the output: "model.npz" for "model.pbtxt".
std::string WeightsNextTo(const std::string& out) {
  return fs::path(out).replace_extension(".npz").string();
}

void TellMissing(const std::vector<std::string>& files, const std::vector<std::string>& missing) {
  if (missing.empty()) return;
  LogMessage(MessageLevel::kWarning,
             fmt::format("{} has no weights for {}; they start as the text says",
                         Quote(Join(files, ", "), 300), PrintableLine(Join(missing, ", "))));
}

// Writes the weights of the net as an .npz that jobs and `run` read by name.
void WriteWeights(const caffe::ImportedNet& net, const std::vector<std::string>& files,
                  const std::string& path) {
  std::vector<std::string> missing, notes;
  const NamedTensors values = caffe::StartValues(net, files, &missing, &notes);
  WriteNpz(values, path);
  Tell(notes);
  TellMissing(files, missing);
  LogMessage(
      MessageLevel::kInfo,
      fmt::format("{}: {} arrays; weights {{ file: {} }} in a job reads them", PrintableLine(path),
                  values.size(), Quote(fs::path(path).filename().string(), 300)));
}

std::string NoDatabase(const caffe::ImportedJob& job) {
  return fmt::format("there is no database {} here; {}", Quote(Join(job.missing, ", "), 300),
                     caffe::kDataAdvice);
}

int ConvertSolver(const std::string& text, const std::string& weights, const std::string& out,
                  const CaffeFlags& flags) {
  RequireEnding("OUT", out, {".pbtxt", ".txt"});
  const std::string npz = WeightsNextTo(out);
  ImportOptions options = OptionsOf(flags);
  if (!weights.empty()) options.weights = {weights};
  const caffe::ImportedJob job =
      caffe::ImportSolver(text, options, fs::path(npz).filename().string());
  Tell(job.notes);
  if (!job.missing.empty()) LogMessage(MessageLevel::kWarning, NoDatabase(job));
  ParseJobText(job.text, out, ".");  // checks that the output is a valid job
  if (!job.weights.empty()) WriteWeights(job.net, job.weights, npz);
  WriteFileAtomic(out, job.text);
  return 0;
}

int ConvertNet(const std::string& text, const std::string& weights, const std::string& out,
               const CaffeFlags& flags) {
  const ImportOptions options = OptionsOf(flags);
  const bool is_text = out == "-" || out.ends_with(".pbtxt") || out.ends_with(".txt");
  if (!is_text) {
    RequireProgramName("OUT", out);
    if (weights.empty()) {
      throw UsageError(
          fmt::format("a program for use needs weights: convert {} WEIGHTS.caffemodel {}; a model "
                      "text to train "
                      "does not: OUT.pbtxt",
                      PrintableLine(text), PrintableLine(out)));
    }
    if (!out.ends_with(".pdmodel"))
      throw UsageError("OUT must end in .pdmodel (the .pdiparams is written next to it), got " +
                       Quote(out, 300));
    std::vector<std::string> notes;
    const caffe::Net net = caffe::ParseNet(ReadFile(text, kMaxProgramBytes), text);
    caffe::SaveInferenceNet(net, options, caffe::ReadCaffeModel(weights),
                            fs::path(out).replace_extension().string(), &notes);
    Tell(notes);
    return 0;
  }
  const caffe::ImportedNet net = caffe::ImportNetFile(text, options);
  Tell(net.notes);
  for (const bool train : {true, false}) {  // checks that the output is a valid model text
    ModelState state;
    state.train = train;
    ParseModelText(net.text, out, ".", DefaultOps(), state);
  }
  if (!weights.empty()) WriteWeights(net, {weights}, WeightsNextTo(out));
  WriteFileAtomic(out, net.text);
  return 0;
}

}  // namespace

Fields<CaffeFlags> CaffeFields() {
  return Fields<CaffeFlags>("")
      .Add("data", &CaffeFlags::data,
           "for a text of Caffe, replaces its databases: `train:FILE,test:FILE`, each an .npz, a "
           "database's directory or MNIST's images-idx3 file")
      .Add("data_dir", &CaffeFlags::data_dir,
           "`DIR` that contains the data files with relative names")
      .Add("shape", &CaffeFlags::shape,
           "for a text of Caffe, shapes of inputs that it does not give: `VAR:8x3x32x32,...`")
      .Add("stage", &CaffeFlags::stage,
           "for a text of Caffe, `NAMES` of the stages for its include and exclude rules");
}

bool IsCaffeText(const std::string& path) { return path.ends_with(".prototxt"); }

int ConvertCaffe(const Args& args, const CaffeFlags& flags) {
  RequireArgs(args, 2, 3, "TEXT.prototxt, perhaps WEIGHTS.caffemodel, and OUT");
  const std::string weights = args.size() == 3 ? args[1] : "";
  if (!weights.empty() && !IsWeights(weights)) {
    throw UsageError("the second of three arguments must be a .caffemodel, got " +
                     Quote(weights, 300));
  }
  return caffe::IsSolverFile(args[0]) ? ConvertSolver(args[0], weights, args.back(), flags)
                                      : ConvertNet(args[0], weights, args.back(), flags);
}

JobConfig ReadSolverJob(const std::string& path, const CaffeFlags& flags) {
  if (!caffe::IsSolverFile(path)) {
    throw UsageError(
        fmt::format("{} is a network's text; a solver's says how it is trained", Quote(path, 300)));
  }
  const auto job =
      std::make_shared<const caffe::ImportedJob>(caffe::ImportSolver(path, OptionsOf(flags), ""));
  Tell(job->notes);
  if (!job->missing.empty())
    throw Error(ErrorCode::kNotFound, PrintableLine(path) + ": " + NoDatabase(*job));
  JobConfig config = ParseJobText(job->text, path + " (as a job)", ".");
  if (!job->weights.empty()) {
    config.weights.push_back({.file = Join(job->weights, ","), .read = [job] {
                                std::vector<std::string> missing, notes;
                                NamedTensors values =
                                    caffe::StartValues(job->net, job->weights, &missing, &notes);
                                Tell(notes);
                                return values;
                              }});
  }
  return config;
}

}  // namespace coracle::tools
