#pragma once
// Files of pickled Python objects, which Paddle 2 writes as .pdparams and .pdopt. Reading one may
// run code that it contains, so they are refused.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <string>
#include <string_view>

namespace coracle::inline internal {

// Whether the bytes begin as a pickle of protocol 2 to 5 does.
inline bool IsPickle(std::string_view bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

// Throws kUnimplemented if the file begins as a pickle.
inline void RefusePickle(std::string_view bytes, const std::string& path) {
  if (!IsPickle(bytes)) return;
  throw Error(ErrorCode::kUnimplemented,
              fmt::format("{} is a pickle of Python (.pdparams, .pdopt), and no parameter file: in "
                          "Paddle, paddle.jit.save or paddle.static.save_inference_model writes "
                          "the same parameters as .pdiparams",
                          Quote(path, 300)));
}

}  // namespace coracle::inline internal
