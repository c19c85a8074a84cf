#pragma once
// Polygons drawn into square masks, as run lengths of the COCO data set have them.

#include <cstdint>
#include <vector>

namespace coracle {

class PolygonMask {
 public:
  explicit PolygonMask(int64_t side)
      : side_(side), toggles_(static_cast<size_t>(side * side + 1)) {}

  // Whether a point is near enough to be drawn. In units of cells.
  static bool Reaches(double x, double y);

  // A polygon: Begin, LineTo for its corners, End. REQUIRES: Reaches for every corner.
  void Begin();
  void LineTo(double x, double y);
  // Closes it and sets the elements inside, of side rows of side elements, to 1.
  void End(int32_t* to);

 private:
  // A place on a grid five times as fine as the cells.
  struct Place {
    int64_t u = 0, v = 0;
  };
  void Edge(const Place& from, const Place& to);
  void Step(const Place& to);

  int64_t side_;
  std::vector<uint8_t> toggles_;  // down the columns: whether inside and outside change there
  bool empty_ = true;
  Place first_, corner_, last_;
};

}  // namespace coracle
