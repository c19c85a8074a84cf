#pragma once
// POST /v1/predict/NAME: answers to raw rows, for models with a description of their preprocessing.

#include <coracle/serve/http_message.h>
#include <coracle/train/run/predict/predictor_core.h>

#include <optional>

namespace coracle::serve {

// Answers a request by its Content-Type: `application/json` (also without a type) is
// {"rows": [{"age": 41, "city": "Oslo"}, ...], "top": 3, "all_scores": false}; `text/csv` is a csv
// file of rows; `image/...` is one picture; `text/plain` is one text. The answer is
// {"answers": [{"prob": "setosa", "prob_score": 0.98}, ...]}, see AnswersToJson. At most
// `max_batch` rows run together. Throws HttpError: 400 for a body that the model does not read,
// with the row, 413 for a picture that takes more than DecodeBytes(core, decode_mb) of memory, 415
// for another type, and 503 if there is no memory for the picture.
Response PredictRoute(const PredictorCore& core, const Request& request, int64_t max_batch,
                      const RunFeeds& run = {}, std::optional<int64_t> decode_mb = {});

// Bytes that the rows of a request take while they are read, at most. Throws HttpError with status
// 413 for a picture that is too large to be read.
uint64_t PredictBytes(const Request& request);

}  // namespace coracle::serve
