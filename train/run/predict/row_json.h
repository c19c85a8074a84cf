#pragma once
// Raw rows and answers as JSON, for `coracle predict` and for servers.

#include <coracle/framework/base/json_reader.h>
#include <coracle/train/run/saved_model.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// A row as an object: {"age": 41, "city": "Oslo", "words": [3, 5]}. null is an empty cell, true and
// false are words, and a list is a cell with blanks between its items. Throws kDataLoss for
// anything else.
RawRow RowOfJson(const JsonReader& object);

// {"prob": "setosa", "prob_score": 0.98}, and for more classes "prob_top": [{"class", "score"},
// ...]. Numbers are written so that reading them gives the same values; nan and infinities are the
// words "nan", "inf" and "-inf". An output without classes is a list of its values.
std::string AnswersToJson(const std::vector<RowAnswer>& answers, bool all_scores);

}  // namespace coracle::inline internal
