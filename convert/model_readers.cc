// Every program that is linked to this library reads ONNX models and programs of Paddle 3 by
// LoadInferenceModel, without a call.

#include <coracle/convert/models.h>

extern "C" {
// A linker leaves out files of a static library that nothing refers to. The link options of
// coracle::convert (cmake/library.cmake, cmake/coracle_convert.pc.in) refer to this name.
extern int coracle_convert_readers;
int coracle_convert_readers = [] {
  coracle::RegisterOnnxReader();
  coracle::RegisterPirReader();
  return 1;
}();
}
