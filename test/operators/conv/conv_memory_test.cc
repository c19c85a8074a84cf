// Convolutions write nothing but their own memory: CheckFast looks at what lies around it.

#include <coracle/test/operators/conv/conv_case.h>

namespace coracle::conv_memory_test {

// oneDNN 2.6 has a kernel for gradients of strided filters of one pixel that writes past its
// scratch memory if there are fewer channels than a register holds and the strides divide
// the image.
TEST(ConvMemory, StridedFiltersOfOnePixel) {
  for (int64_t channels : {1, 2, 3, 5, 7, 8, 9, 15, 17}) {
    for (const char* format : {"NHWC", "NCHW"}) {
      SCOPED_TRACE(::testing::Message() << channels << " channels " << format);
      ConvCase c{2, channels, 12, 1, 30, 33, 1, 1, {}, {0, 0}, {1, 1}, "EXPLICIT", format, true};
      c.strides = {2, 3};
      c.Test().CheckFast();
    }
  }
}

}  // namespace coracle::conv_memory_test
