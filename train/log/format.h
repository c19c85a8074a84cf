#pragma once
// Formats numbers for people.

#include <coracle/train/report/report.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// Six digits; "nan" for either sign; exponents without a plus sign: "4.095e31".
std::string FormatNumber(double value);
// Like FormatNumber, with four decimals if they are enough: "0.6931", but "1.234e-05"
// and "4.095e31".
std::string FormatShort(double value);

// Returns " loss=0.25 accuracy=0.9"; `format` formats each number.
std::string FormatValues(const std::vector<NamedValue>& values,
                         std::string (*format)(double) = FormatNumber);

// A table with a row for each label and a column for each answer. Of more than 30 classes, a line
// "matrix: 200 classes, ELSEWHERE", which says where the counts are.
std::string FormatConfusion(const ConfusionMatrix& confusion,
                            std::string_view elsewhere = "whose counts are in log.jsonl");

// Replaces each sequence of bytes that is not UTF-8: JSON cannot hold it.
std::string Utf8(const std::string& text);

// Returns the name without quotes if it needs none, else with quotes: see Quote.
std::string QuoteIfNeeded(std::string_view name, size_t max_length = 300);

}  // namespace coracle::inline internal
