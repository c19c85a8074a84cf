#ifndef CORACLE_C_H_
#define CORACLE_C_H_
/*
 * The C interface of Coracle: load a model and run it, train a program step by step. C11, and every
 * language that calls C. Link libcoracle_c (pkg-config coracle_c).
 *
 * - Functions that can fail return a status: CORACLE_OK (0), or one of the codes below. Then
 *   coracle_last_error() of the same thread says what is wrong, where, and how to mend it. No C++
 *   exception passes through these functions, and none of them prints, exits or aborts.
 * - The library frees what it made, by the function named after it (coracle_model_free, ...), which
 *   accepts NULL. It never frees or keeps memory of the caller, unless a comment says so. If a
 *   function that makes a handle fails, it sets the handle to NULL.
 * - Text is UTF-8 and ends in a zero byte. A pointer argument must not be NULL where the comment
 *   does not allow it; the function then returns CORACLE_INVALID_ARGUMENT.
 * - Each handle states which threads may use it. No other call may use a handle while it is freed.
 * - A function or a field of a released version stays. New fields of a struct come last;
 *   `struct_size` says how many the caller knows, and a library that knows fewer ignores the rest.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CORACLE_C_API __attribute__((visibility("default")))
#else
#define CORACLE_C_API
#endif

/* The version of this interface. It grows by one when functions are added. */
#define CORACLE_API_VERSION 1

/* The version of the loaded library's interface. A program that needs a function of version N
 * compares: coracle_api_version() >= N. */
CORACLE_C_API int32_t coracle_api_version(void);
/* The library's version, "0.1.0". */
CORACLE_C_API const char* coracle_version(void);

/* --- errors --- */

enum {
  CORACLE_OK = 0,
  CORACLE_INVALID_ARGUMENT = 1,   /* a value, shape, dtype, name or text is wrong in itself */
  CORACLE_NOT_FOUND = 2,          /* a file, variable or name does not exist */
  CORACLE_ALREADY_EXISTS = 3,     /* a name is in use */
  CORACLE_OUT_OF_RANGE = 4,       /* an index outside its tensor, a buffer that is too small */
  CORACLE_UNIMPLEMENTED = 5,      /* a valid request that this build cannot serve */
  CORACLE_RESOURCE_EXHAUSTED = 6, /* out of memory, or above a limit */
  CORACLE_DEADLINE_EXCEEDED = 7,  /* time_limit */
  CORACLE_CANCELLED = 8,          /* coracle_session_cancel */
  CORACLE_DATA_LOSS = 9,          /* a damaged or truncated file */
  CORACLE_IO = 10,                /* the operating system refused */
  CORACLE_INTERNAL = 11           /* a defect of Coracle */
};

/* What the last function that failed in this thread had to say: the first line says what is wrong,
 * further lines give details. "" if none has failed. Valid until the next failure in this thread.
 */
CORACLE_C_API const char* coracle_last_error(void);
/* Its status; CORACLE_OK if none has failed. */
CORACLE_C_API int32_t coracle_last_status(void);

/* --- process-wide settings --- */

/* How many threads one run uses at most, from 1 on. Default: the environment's OMP_NUM_THREADS, or
 * as many as there are processors. */
CORACLE_C_API int32_t coracle_set_threads(int32_t threads);

/* `log` is called for each message of the library (level 0: information, 1: warning, 2: error).
 * Without it, messages go to standard error; NULL restores that.
 * - It is called by any thread, also by threads that the library made, but one call at a time.
 * - `message` is valid during the call only.
 * - It must not throw or jump out. It may call functions of this header; a message that these cause
 *   in the same thread meanwhile is dropped.
 * - When coracle_set_log returns, the function before is not running and never runs again, so that
 *   `user` may be freed. Called by the log function itself, it returns at once. */
typedef void (*coracle_log_function)(int32_t level, const char* message, void* user);
CORACLE_C_API void coracle_set_log(coracle_log_function log, void* user);

/* --- tensors --- */

/* Element types. The numbers are those of Paddle's VarType. */
enum {
  CORACLE_BOOL = 0,
  CORACLE_INT16 = 1,
  CORACLE_INT32 = 2,
  CORACLE_INT64 = 3,
  CORACLE_FLOAT16 = 4,
  CORACLE_FLOAT32 = 5,
  CORACLE_FLOAT64 = 6,
  CORACLE_UINT64 = 19,
  CORACLE_UINT8 = 20,
  CORACLE_INT8 = 21,
  CORACLE_BFLOAT16 = 22,
  CORACLE_COMPLEX64 = 23,
  CORACLE_COMPLEX128 = 24,
  CORACLE_STRING = 25 /* elements are coracle_string */
};

/* Bytes of any encoding, without a zero byte at the end. */
typedef struct coracle_string {
  const char* data;
  uint64_t size;
} coracle_string;

/* Elements in memory, in row-major order without gaps. As an input, all fields but `capacity` are
 * the caller's, and the elements are only read. As an output, `struct_size` is the caller's, and
 * - capacity 0: the library sets `data` to memory of the session (whatever `data` was before);
 * - else `data` is the caller's memory of `capacity` bytes, to which the library copies the result.
 * The library sets all other fields but `capacity`, so that a tensor may be an output again and
 * again: it keeps its memory. */
typedef struct coracle_tensor {
  uint32_t struct_size; /* sizeof(coracle_tensor) */
  int32_t dtype;        /* CORACLE_FLOAT32, ... */
  int32_t rank;         /* how many dims there are: 0 to 9 */
  int32_t lod_levels;   /* levels of sequences; 0: the rows are no sequences */
  const int64_t* dims;
  void* data;
  uint64_t bytes; /* of the elements at data */
  /* Where sequences begin and end (Paddle's LoD): level k has lod_sizes[k] offsets, lod[k], which
   * begin with 0. */
  const uint64_t* const* lod;
  const uint64_t* lod_sizes;
  uint64_t capacity; /* outputs: bytes of the caller's memory at data; 0: data is the session's */
} coracle_tensor;

/* Bytes of one element; 0 for an unknown type. */
CORACLE_C_API uint64_t coracle_dtype_size(int32_t dtype);
/* "float32", "int64", ...; "unknown". */
CORACLE_C_API const char* coracle_dtype_name(int32_t dtype);

/* --- options --- */

/* Settings by name, for the functions that load. One thread at a time. */
typedef struct coracle_options coracle_options;
CORACLE_C_API int32_t coracle_options_new(coracle_options** options);
CORACLE_C_API void coracle_options_free(coracle_options* options);
/* clang-format off */
/*
 * name              value
 * memory_limit      bytes that a run may use; 0: 80% of the machine's memory
 * time_limit        seconds that a run may take; 0: no limit
 * kernels           auto, reference
 * optimize          1: run the compiler's passes (default), 0: do not
 * tune              1: choose kernels by timing them for each new shape, 0: by rules (default)
 * flush_subnormals  1: treat subnormal numbers as 0 (default), 0: keep them
 * seed              of random ops
 * shape:NAME        shape of the model's input NAME, "1,3,224,224"; -1 leaves a dim open
 *
 * Returns CORACLE_NOT_FOUND for an unknown name, CORACLE_INVALID_ARGUMENT for a bad value. An input
 * that the model does not have is an error of the function that loads; a trainer takes no shapes.
 */
/* clang-format on */
CORACLE_C_API int32_t coracle_options_set(coracle_options* options, const char* name,
                                          const char* value);

/* --- models --- */

/* A compiled inference model. Any number of threads may use it. */
typedef struct coracle_model coracle_model;

/* Loads a model of Paddle (a directory, a .pdmodel file or its prefix), of Paddle 3
 * (inference.json) or of ONNX (.onnx), with its parameters, and compiles it. `options` may be NULL;
 * it may be freed afterwards. */
CORACLE_C_API int32_t coracle_model_load(const char* path, const coracle_options* options,
                                         coracle_model** model);
/* The same from memory, which the caller may free afterwards. `format` is "pdmodel" (binary or
 * text), "json" (Paddle 3) or "onnx". `parameters` are the bytes of the .pdiparams file; NULL with
 * 0 bytes for models that have none, and for ONNX. */
CORACLE_C_API int32_t coracle_model_load_memory(const char* format, const void* program,
                                                uint64_t program_bytes, const void* parameters,
                                                uint64_t parameter_bytes,
                                                const coracle_options* options,
                                                coracle_model** model);
/* Sessions of the model stay usable. */
CORACLE_C_API void coracle_model_free(coracle_model* model);

CORACLE_C_API int32_t coracle_model_inputs(const coracle_model* model);  /* how many; 0 for NULL */
CORACLE_C_API int32_t coracle_model_outputs(const coracle_model* model); /* how many; 0 for NULL */
/* The type of input or output `index`, as the model declares it. `dtype`, `rank` and `dims` may be
 * NULL; `dims` has room for 9 numbers. A dim that differs from run to run is -1. The name lives as
 * long as the model. Returns CORACLE_OUT_OF_RANGE for an index that the model does not have. */
CORACLE_C_API int32_t coracle_model_input(const coracle_model* model, int32_t index,
                                          const char** name, int32_t* dtype, int32_t* rank,
                                          int64_t* dims);
CORACLE_C_API int32_t coracle_model_output(const coracle_model* model, int32_t index,
                                           const char** name, int32_t* dtype, int32_t* rank,
                                           int64_t* dims);

/* --- running a model --- */

/* The memory for running a model, and the state of models that keep one from run to run. One
 * thread at a time: make one session for each thread. Sessions share the model's parameters. */
typedef struct coracle_session coracle_session;
CORACLE_C_API int32_t coracle_session_new(const coracle_model* model, coracle_session** session);
CORACLE_C_API void coracle_session_free(coracle_session* session);

/*
 * Runs the model once. `inputs` has coracle_model_inputs() tensors in the model's order, whose
 * elements are read where they are; their shapes may change from run to run. `outputs` has
 * coracle_model_outputs() tensors: see coracle_tensor for who owns their memory.
 * - What lies in the session's memory (data, dims, lod) belongs to the caller until the session's
 *   next run or its end. `data` may be written to: it is never a part of an input or a parameter.
 *   It may be an input of the next run.
 * - CORACLE_OUT_OF_RANGE: some `capacity` is too small. Then `bytes` of each output says how many
 *   are needed; no other field and no element has changed, but the model has run, which counts for
 *   models that keep a state.
 * - Results of strings cannot be copied: they need a capacity of 0.
 * - After any other error the outputs are unchanged, and the session is as good as before, except
 *   that the state of a model that keeps one may have changed in part.
 */
CORACLE_C_API int32_t coracle_session_run(coracle_session* session, const coracle_tensor* inputs,
                                          int32_t input_count, coracle_tensor* outputs,
                                          int32_t output_count);
/* Ends the run that another thread has begun, with CORACLE_CANCELLED, before its next op. Any
 * thread may call it, but not while or after the session is freed. It has no effect between runs: a
 * cancel that comes before the run has begun is lost, and one that comes too late does not end the
 * next run. A program that must not lose it repeats it until coracle_session_run has returned. */
CORACLE_C_API void coracle_session_cancel(coracle_session* session);

/* --- training --- */

/* A training program with the values of its variables. One thread at a time. */
typedef struct coracle_trainer coracle_trainer;

/* Reads a program with its gradient and update ops (binary or text), runs the startup program,
 * which gives parameters their first values, and reads the parameters in `parameters` over them (a
 * .pdiparams, .npz or .safetensors file, or a directory). `startup`, `parameters` and `options` may
 * be NULL. */
CORACLE_C_API int32_t coracle_trainer_new(const char* program, const char* startup,
                                          const char* parameters, const coracle_options* options,
                                          coracle_trainer** trainer);
CORACLE_C_API void coracle_trainer_free(coracle_trainer* trainer);
/* Runs one step: feeds the variables `feed_names`, and gives the values of `fetch_names` as
 * coracle_session_run does. A fetched parameter is a copy. */
CORACLE_C_API int32_t coracle_trainer_step(coracle_trainer* trainer, const char* const* feed_names,
                                           const coracle_tensor* feeds, int32_t feed_count,
                                           const char* const* fetch_names, coracle_tensor* fetches,
                                           int32_t fetch_count);
/* Writes all persistable variables: .npz, .safetensors, or else the format of .pdiparams. */
CORACLE_C_API int32_t coracle_trainer_save(coracle_trainer* trainer, const char* path);
/* Writes the part of the program that computes `outputs` from `inputs` as an inference model,
 * PATH.pdmodel and PATH.pdiparams. */
CORACLE_C_API int32_t coracle_trainer_save_model(coracle_trainer* trainer, const char* path,
                                                 const char* const* inputs, int32_t input_count,
                                                 const char* const* outputs, int32_t output_count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CORACLE_C_H_ */
