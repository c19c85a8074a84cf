#pragma once
#include <coracle/passes/pass.h>

namespace coracle {

// In a program without gradients, runs of convolutions, poolings, elementwise ops and transpose2 on
// more than one image become fused_images, which run all of them on some images before the next.
// Runs are cut behind ops whose results others need, and end where filters begin to be larger than
// what is read and written of an image: these are read anew for each chunk of images.
void FuseImages(ProgramDesc& program, const PassContext& context);

}  // namespace coracle
