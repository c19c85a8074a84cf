#pragma once
// All of Coracle's public interface.

#include <coracle/backward/backward.h>
#include <coracle/clip/error_clip.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/logging.h>
#include <coracle/framework/base/parallel.h>
#include <coracle/framework/io/npy.h>
#include <coracle/framework/io/program_io.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/variable.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/interpreter.h>
#include <coracle/framework/op/op_library.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/framework/op/verifier.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/framework/tensor/scope.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/model_text.h>
#include <coracle/operators/default_ops.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/passes/pass.h>
