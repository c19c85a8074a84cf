#include <coracle/framework/base/file.h>
#include <coracle/tools/preprocess_files.h>
#include <coracle/train/job/preprocess.h>
#include <coracle/train/run/predict/predictor_core.h>

#include <filesystem>

namespace coracle::tools {
namespace {

std::string PreprocessText(const std::string& model) {
  if (model == "-") return "";
  std::string source;
  return FindPreprocess(ModelFileOf(model), &source);
}

}  // namespace

std::map<std::string, std::string> PreprocessMetadata(const std::string& in) {
  const std::string text = PreprocessText(in);
  if (text.empty()) return {};
  return {{kPreprocessKey, text}};
}

void CopyPreprocess(const std::string& in, const std::string& out) {
  if (!out.ends_with(".pdmodel")) return;
  const std::string text = PreprocessText(in), file = PreprocessFileOf(out);
  if (!text.empty()) return WriteFileAtomic(file, text);
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
}

}  // namespace coracle::tools
