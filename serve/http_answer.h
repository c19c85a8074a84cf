#pragma once
// The text of an answer.

#include <coracle/serve/http_message.h>

#include <string>

namespace coracle::serve {

// The head, up to and with the empty line. Content-Length is the size of the answer's body. The
// connection goes on for idle_seconds if `keep`.
std::string AnswerHead(const Response& response, bool keep, double idle_seconds);

// Compresses a text of some size if `accepted`, the request's header Accept-Encoding, allows gzip
// or deflate.
void CompressBody(const std::string& accepted, Response* response);

}  // namespace coracle::serve
