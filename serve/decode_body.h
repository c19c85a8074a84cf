#pragma once
// Bodies that the client has compressed.

#include <coracle/serve/http_message.h>
#include <coracle/serve/memory_budget.h>

namespace coracle::serve {

// Undoes the Content-Encoding of the body. Throws HttpError: 400 for a body that is damaged, 413 if
// it has more than max_body bytes then, and 413 or 503 if `share` cannot grow by them; all before
// memory is allocated for them. Ends with the time limit of the thread's ResourceLimits.
void DecodeBody(uint64_t max_body, BudgetShare* share, Request* request);

}  // namespace coracle::serve
