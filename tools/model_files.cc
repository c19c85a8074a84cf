#include <coracle/convert/models.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/tools/command.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/model_files.h>
#include <coracle/tools/program_input.h>
#include <fmt/format.h>

#include <filesystem>

namespace coracle::tools {
namespace {

namespace fs = std::filesystem;

std::string WriteParameters(const ModelFiles& model, const std::string& path) {
  const std::vector<std::string> names = PersistableNames(model.program);
  WriteOutput([&] { SaveParameters(model.values, names, path); });
  uint64_t bytes = 0;
  for (const std::string& name : names) bytes += model.values.Get(name).nbytes();
  return fmt::format("{}: {}, {}\n", Shown(path), Counted(names.size(), "persistable variable"),
                     HumanBytes(bytes));
}

}  // namespace

Fields<ModelFlags> ModelFields() {
  return Fields<ModelFlags>("")
      .Add("out", &ModelFlags::out, "`FILE` of the resulting program")
      .Add("params", &ModelFlags::params, kParamsDoc)
      .Add("save_params", &ModelFlags::save_params,
           "`FILE` for the values of the persistable variables");
}

std::string ParametersFileOf(const std::string& program_file) {
  const fs::path file = program_file;
  if (file.filename() == "__model__") return (file.parent_path() / "__params__").string();
  return file.extension() == ".pdmodel" ? fs::path(file).replace_extension(".pdiparams").string()
                                        : "";
}

ModelFiles ReadModel(const std::string& path, const std::string& given) {
  ModelFiles model;
  if (IsOnnx(path) && given.empty()) {
    model.program = ImportOnnx(path, model.values, ImportOptions()).program;
    model.read = {path};
    model.has_values = true;
    return model;
  }
  model.program = ReadAnyProgram(path);
  const std::string file = ProgramFile(path);
  const std::string params = given.empty() ? ParametersNextTo(file, model.program) : given;
  // A directory may hold a combined file. Files of single variables have their own names.
  model.read = {file, IsDirectory(params) ? params + "/__params__" : params};
  model.has_values = !params.empty() || PersistableNames(model.program).empty();
  if (!params.empty()) ReadParameters(model.program, params, model.values);
  return model;
}

void RequireValues(const ModelFiles& model, const std::string& path) {
  if (model.has_values) return;
  throw Error(
      ErrorCode::kNotFound,
      fmt::format("{} has no parameters next to it; --params=DIR or --params=FILE gives them",
                  Quote(path, 300)));
}

void CheckModelFlags(const ModelFlags& flags) {
  if (flags.out.empty()) throw UsageError("--out=FILE is missing: where the program goes");
  RequireProgramName("--out", flags.out);
  RequireParametersName("--save_params", flags.save_params);
  if (flags.out == flags.save_params) throw UsageError("--out and --save_params are the same file");
}

std::string WrittenParameters(const ModelFlags& flags) {
  return flags.save_params.empty() ? ParametersFileOf(flags.out) : flags.save_params;
}

void RefuseOwnFiles(const std::vector<std::string>& read, const std::vector<std::string>& written) {
  for (const std::string& from : read) {
    for (const std::string& to : written) {
      std::error_code ignored;
      if (!from.empty() && !to.empty() && fs::equivalent(from, to, ignored))
        throw UsageError("the result would overwrite an input file: give another --out");
    }
  }
}

void RefuseForeignParameters(const ModelFlags& flags) {
  const std::string params = ParametersFileOf(flags.out);
  if (params.empty() || !FileExists(params)) return;
  throw Error(ErrorCode::kAlreadyExists,
              fmt::format("{} holds parameters of another program, which readers would take for "
                          "those of this one: remove it, or give parameters by --params",
                          Quote(params, 300)));
}

std::string WriteModel(const ModelFiles& model, const ModelFlags& flags) {
  const std::string params = WrittenParameters(flags);
  RefuseOwnFiles(model.read, {flags.out, params});
  if (!model.has_values) {
    if (!flags.save_params.empty()) {
      throw Error(ErrorCode::kNotFound,
                  "--save_params: the program came without parameters; --params=DIR or "
                  "--params=FILE gives them");
    }
    RefuseForeignParameters(flags);
  }
  std::string report;
  const bool any =
      !PersistableNames(model.program).empty() || !flags.save_params.empty() || FileExists(params);
  if (model.has_values && any && !params.empty()) report = WriteParameters(model, params);
  // last, so that a reader that finds the program finds the parameters too
  WriteProgram(model.program, flags.out);
  if (flags.out == "-" || flags.save_params == "-") return "";
  size_t ops = 0;
  model.program.ForEachOp([&](const OpDesc&) { ++ops; });
  const bool needs = !PersistableNames(model.program).empty() && report.empty();
  const std::string without = !needs             ? ""
                              : model.has_values ? ", without parameters; --save_params writes them"
                                                 : ", without parameters: the program came without";
  return fmt::format("{}: {} in {}{}\n", Shown(flags.out), Counted(ops, "op"),
                     Counted(static_cast<size_t>(model.program.NumBlocks()), "block"), without) +
         report;
}

std::string DescribeVars(const std::string& heading, const ProgramDesc& program,
                         const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    const VarDesc* var = program.Root().FindVar(name);
    parts.push_back(Shown(name) + (var ? " " + var->meta().ToString() : ""));
  }
  return fmt::format("{:<9}{}\n", heading, parts.empty() ? "none" : Join(parts, ", "));
}

}  // namespace coracle::tools
