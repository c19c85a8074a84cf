// Finds text in a picture and draws a box around each line.
//
//   text_detection MODEL.pdmodel PICTURE.png RESULT.png
//   text_detection --sample PICTURE.png                     draws a picture with text

#include <cstdio>
#include <cstring>
#include <exception>

#include "detector.h"
#include "lettering.h"

namespace {

int Detect(const char* model, const char* input, const char* output) {
  Picture picture = ReadPng(input);
  const std::vector<TextBox> boxes = TextDetector(model).Find(picture);
  for (const TextBox& box : boxes) {
    DrawQuad(picture, box.corners, {220, 20, 20}, 2);
    std::printf("%.2f ", box.score);
    for (const Point& corner : box.corners) std::printf(" (%.0f, %.0f)", corner.x, corner.y);
    std::printf("\n");
  }
  WritePng(picture, output);
  std::printf("%zu boxes, drawn in %s\n", boxes.size(), output);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 3 && std::strcmp(argv[1], "--sample") == 0) {
      WritePng(DrawSample().picture, argv[2]);
      return 0;
    }
    if (argc == 4) return Detect(argv[1], argv[2], argv[3]);
    std::fprintf(stderr,
                 "usage: text_detection MODEL.pdmodel PICTURE.png RESULT.png\n"
                 "       text_detection --sample PICTURE.png\n");
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "text_detection: %s\n", e.what());
    return 1;
  }
}
