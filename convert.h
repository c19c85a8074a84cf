#pragma once
// The interface of the library coracle_convert: reads and writes ONNX models, and reads programs of
// Paddle 3. (The command and training jobs also read models of Caffe.)

#include <coracle/convert/models.h>
#include <coracle/coracle.h>
