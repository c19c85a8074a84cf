/* Loads a model and runs it on numbers of the command line, in C:
 *   classify MODEL NUMBER...
 * The numbers fill the model's only input, whose first unknown dim follows from how many there are.
 * Prints each output, a row a line. Build: cc classify.c $(pkg-config --cflags --libs coracle_c) */

#include <coracle/coracle_c.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int32_t status) {
  if (status == CORACLE_OK) return;
  fprintf(stderr, "classify: %s\n", coracle_last_error());
  exit(1);
}

static void print(const coracle_tensor* result) {
  const float* values = result->data;
  const int64_t count = (int64_t)(result->bytes / sizeof(float));
  const int64_t width = result->rank > 0 ? result->dims[result->rank - 1] : 1;
  for (int64_t i = 0; i < count; ++i)
    printf("%g%c", (double)values[i], (i + 1) % width == 0 ? '\n' : ' ');
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: classify MODEL NUMBER...\n");
    return 2;
  }
  coracle_model* model = NULL;
  coracle_session* session = NULL;
  check(coracle_model_load(argv[1], NULL, &model));
  check(coracle_session_new(model, &session));

  int64_t dims[9], known = 1;
  int32_t rank = 0, dtype = 0, open_dim = -1;
  check(coracle_model_input(model, 0, NULL, &dtype, &rank, dims));
  for (int32_t i = 0; i < rank; ++i) {
    if (dims[i] >= 0)
      known *= dims[i];
    else if (open_dim < 0)
      open_dim = i;
    else
      dims[i] = 1;
  }
  const int64_t count = argc - 2;
  if (dtype != CORACLE_FLOAT32 || known == 0 || count % known != 0) {
    fprintf(stderr, "classify: the input takes float32, a multiple of %lld numbers\n",
            (long long)known);
    return 1;
  }
  if (open_dim >= 0) dims[open_dim] = count / known;

  float* numbers = malloc((size_t)count * sizeof *numbers);
  if (!numbers) return 1;
  for (int64_t i = 0; i < count; ++i) numbers[i] = strtof(argv[i + 2], NULL);
  coracle_tensor input = {.struct_size = sizeof input,
                          .dtype = dtype,
                          .rank = rank,
                          .dims = dims,
                          .data = numbers,
                          .bytes = (uint64_t)count * sizeof *numbers};
  const int32_t outputs = coracle_model_outputs(model);
  coracle_tensor* results = calloc((size_t)outputs, sizeof *results);
  if (!results) return 1;
  for (int32_t i = 0; i < outputs; ++i) results[i].struct_size = sizeof *results;
  check(coracle_session_run(session, &input, 1, results, outputs));
  for (int32_t i = 0; i < outputs; ++i)
    if (results[i].dtype == CORACLE_FLOAT32) print(&results[i]);

  free(results);
  free(numbers);
  coracle_session_free(session);
  coracle_model_free(model);
  return 0;
}
