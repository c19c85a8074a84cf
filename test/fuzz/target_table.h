#pragma once
// The fuzz targets by name. CMakeLists.txt reads the lines of the table, too: each target has a
// corpus in corpus/NAME and perhaps a dictionary in dictionaries/NAME.dict.

#include <coracle/test/fuzz/targets.h>

namespace coracle {

struct FuzzTarget {
  const char* name;
  void (*run)(std::string_view);
};

inline constexpr FuzzTarget kFuzzTargets[] = {
    {"api", FuzzApi},
    {"caffe", FuzzCaffe},
    {"caffe_weights", FuzzCaffeWeights},
    {"command_line", FuzzCommandLine},
    {"csv", FuzzCsv},
    {"files", FuzzFiles},
    {"idx", FuzzIdx},
    {"image_database", FuzzImageDatabase},
    {"job", FuzzJob},
    {"job_text", FuzzJobText},
    {"json", FuzzJson},
    {"leveldb", FuzzLevelDb},
    {"model_text", FuzzModelText},
    {"onnx", FuzzOnnx},
    {"onnx_export", FuzzOnnxExport},
    {"ops", FuzzOps},
    {"picture", FuzzPicture},
    {"pir", FuzzPir},
    {"predict", FuzzPredict},
    {"preprocess", FuzzPreprocess},
    {"program_binary", FuzzProgramBinary},
    {"program_text", FuzzProgramText},
    {"run", FuzzRun},
    {"serve", FuzzServe},
    {"snapshot", FuzzSnapshot},
    {"tensor", FuzzTensor},
    {"texts", FuzzTexts},
};

}  // namespace coracle
