#pragma once
// The texts that a server shows about itself.

#include <string>

namespace coracle::serve {

// A page with which people try a model by hand: HTML without other files.
std::string StartPage();

// The OpenAPI 3 description of all paths, as JSON.
std::string OpenApi();

}  // namespace coracle::serve
