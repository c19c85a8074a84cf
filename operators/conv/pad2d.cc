#include <coracle/operators/conv/pad.h>

namespace coracle::pad2d_op {

void Register(OpRegistry& ops) {
  AddPadOps(ops, {.type = "pad2d",
                  .axes = 2,
                  .doc = "Out = X with rows and columns added around each image.",
                  .input = "images of numbers",
                  .output = "the padded images",
                  .value = "pad_value",
                  .paddings = "{top, bottom, left, right}",
                  .modes = "constant; reflect: mirrored; edge: the nearest element",
                  .edges = "edge needs",
                  .mode_names = {"constant", "reflect", "edge"},
                  .layouts = {"NCHW", "NHWC"}});
}

}  // namespace coracle::pad2d_op
