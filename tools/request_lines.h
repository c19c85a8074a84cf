#pragma once
// `coracle predict MODEL -` with JSON requests, one a line: what `coracle serve` answers over HTTP.

#include <coracle/executor/executor.h>

#include <string>

namespace coracle::tools {

// Whether ROWS are requests: `rows` is "-", and `format` is "requests", or it is empty and standard
// input begins with a JSON object. Nothing is read that another reader needs. A terminal has no
// requests unless `format` says so. Throws UsageError for requests in a file.
bool AreRequests(const std::string& rows, const std::string& format);

// Answers each line of standard input by a line of JSON on standard output:
// {"inputs": [...]} as POST /v2/models/NAME/infer does, {"rows": [...]} as POST /v1/predict/NAME
// does, and a bad one by {"error": "..."}. Blank lines have no answer. Returns the exit code: 1 if
// a line could not be answered. Throws Error for a model that cannot be loaded.
int AnswerRequestLines(const std::string& model, const CompileOptions& compile);

}  // namespace coracle::tools
