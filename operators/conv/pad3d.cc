#include <coracle/operators/conv/pad.h>

namespace coracle::pad3d_op {

void Register(OpRegistry& ops) {
  AddPadOps(ops,
            {.type = "pad3d",
             .axes = 3,
             .doc = "Out = X with elements added around each volume along width, height and depth.",
             .input = "volumes of numbers",
             .output = "the padded volumes",
             .value = "value",
             .paddings = "{left, right, top, bottom, front, back}",
             .modes = "constant; reflect: mirrored without repeating the edge; replicate: the "
                      "nearest element; circular: from the other end",
             .edges = "replicate and circular need",
             .mode_names = {"constant", "reflect", "replicate", "circular"},
             .layouts = {"NCDHW", "NDHWC"}});
}

}  // namespace coracle::pad3d_op
