#pragma once
// The interface of the library coracle: programs, builder, backward, clips, optimizers, compiler,
// executor, files. <coracle/train.h> adds training jobs, <coracle/convert.h> ONNX and Caffe.

#include <coracle/backward/backward.h>
#include <coracle/clip/clip.h>
#include <coracle/communication/communicator.h>
#include <coracle/distribute/all_reduce.h>
#include <coracle/edit/edit.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/version.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/inspect/inspect.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/layer.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/lr_schedule.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/regularizer/regularizer.h>
