#pragma once
// Draws polygons into square masks, like the run lengths of the COCO data set.

#include <cstdint>
#include <vector>

namespace coracle::inline internal {

class PolygonMask {
 public:
  explicit PolygonMask(int64_t side)
      : side_(side), toggles_(static_cast<size_t>(side * side + 1)) {}

  // Whether a point, in units of cells, is near enough to be drawn.
  static bool Reaches(double x, double y);

  // A polygon: Begin, LineTo for its corners, End. REQUIRES: Reaches for every corner.
  void Begin();
  void LineTo(double x, double y);
  // Closes the polygon and sets the elements inside it to 1, in a mask of side rows of
  // side elements.
  void End(int32_t* to);

 private:
  // A position on a grid five times as fine as the cells.
  struct Place {
    int64_t u = 0, v = 0;
  };
  void Edge(const Place& from, const Place& to);
  void Step(const Place& to);

  int64_t side_;
  // For the cells, column by column: whether inside and outside change there.
  std::vector<uint8_t> toggles_;
  bool empty_ = true;
  Place first_, corner_, last_;
};

}  // namespace coracle::inline internal
