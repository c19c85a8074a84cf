#include "lettering.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>

namespace {

constexpr int kRows = 7, kColumns = 5;
// In cells of a glyph: the gap between letters, the width of a blank, half the width of a stroke.
constexpr double kGap = 1.1, kBlank = 1.5, kStroke = 0.6;

struct Glyph {
  char letter;
  const char* rows[kRows];
};

constexpr Glyph kGlyphs[] = {
    {'A', {" ### ", "#   #", "#   #", "#####", "#   #", "#   #", "#   #"}},
    {'B', {"#### ", "#   #", "#   #", "#### ", "#   #", "#   #", "#### "}},
    {'C', {" ### ", "#   #", "#    ", "#    ", "#    ", "#   #", " ### "}},
    {'D', {"#### ", "#   #", "#   #", "#   #", "#   #", "#   #", "#### "}},
    {'E', {"#####", "#    ", "#    ", "#### ", "#    ", "#    ", "#####"}},
    {'F', {"#####", "#    ", "#    ", "#### ", "#    ", "#    ", "#    "}},
    {'G', {" ### ", "#   #", "#    ", "#  ##", "#   #", "#   #", " ####"}},
    {'H', {"#   #", "#   #", "#   #", "#####", "#   #", "#   #", "#   #"}},
    {'I', {" ### ", "  #  ", "  #  ", "  #  ", "  #  ", "  #  ", " ### "}},
    {'J', {"  ###", "   # ", "   # ", "   # ", "   # ", "#  # ", " ##  "}},
    {'K', {"#   #", "#  # ", "# #  ", "##   ", "# #  ", "#  # ", "#   #"}},
    {'L', {"#    ", "#    ", "#    ", "#    ", "#    ", "#    ", "#####"}},
    {'M', {"#   #", "## ##", "# # #", "# # #", "#   #", "#   #", "#   #"}},
    {'N', {"#   #", "##  #", "# # #", "#  ##", "#   #", "#   #", "#   #"}},
    {'O', {" ### ", "#   #", "#   #", "#   #", "#   #", "#   #", " ### "}},
    {'P', {"#### ", "#   #", "#   #", "#### ", "#    ", "#    ", "#    "}},
    {'Q', {" ### ", "#   #", "#   #", "#   #", "# # #", "#  # ", " ## #"}},
    {'R', {"#### ", "#   #", "#   #", "#### ", "# #  ", "#  # ", "#   #"}},
    {'S', {" ####", "#    ", "#    ", " ### ", "    #", "    #", "#### "}},
    {'T', {"#####", "  #  ", "  #  ", "  #  ", "  #  ", "  #  ", "  #  "}},
    {'U', {"#   #", "#   #", "#   #", "#   #", "#   #", "#   #", " ### "}},
    {'V', {"#   #", "#   #", "#   #", "#   #", "#   #", " # # ", "  #  "}},
    {'W', {"#   #", "#   #", "#   #", "# # #", "# # #", "## ##", "#   #"}},
    {'X', {"#   #", "#   #", " # # ", "  #  ", " # # ", "#   #", "#   #"}},
    {'Y', {"#   #", "#   #", " # # ", "  #  ", "  #  ", "  #  ", "  #  "}},
    {'Z', {"#####", "    #", "   # ", "  #  ", " #   ", "#    ", "#####"}},
    {'0', {" ### ", "#   #", "#  ##", "# # #", "##  #", "#   #", " ### "}},
    {'1', {"  #  ", " ##  ", "  #  ", "  #  ", "  #  ", "  #  ", " ### "}},
    {'2', {" ### ", "#   #", "    #", "   # ", "  #  ", " #   ", "#####"}},
    {'3', {" ### ", "#   #", "    #", "  ## ", "    #", "#   #", " ### "}},
    {'4', {"   # ", "  ## ", " # # ", "#  # ", "#####", "   # ", "   # "}},
    {'5', {"#####", "#    ", "#### ", "    #", "    #", "#   #", " ### "}},
    {'6', {" ### ", "#    ", "#    ", "#### ", "#   #", "#   #", " ### "}},
    {'7', {"#####", "    #", "   # ", "  #  ", "  #  ", "  #  ", "  #  "}},
    {'8', {" ### ", "#   #", "#   #", " ### ", "#   #", "#   #", " ### "}},
    {'9', {" ### ", "#   #", "#   #", " ####", "    #", "    #", " ### "}},
    {' ', {"     ", "     ", "     ", "     ", "     ", "     ", "     "}},
    {'.', {"     ", "     ", "     ", "     ", "     ", " ##  ", " ##  "}},
    {',', {"     ", "     ", "     ", "     ", " ##  ", "  #  ", " #   "}},
    {':', {"     ", " ##  ", " ##  ", "     ", " ##  ", " ##  ", "     "}},
    {'-', {"     ", "     ", "     ", "#####", "     ", "     ", "     "}},
    {'/', {"    #", "    #", "   # ", "  #  ", " #   ", "#    ", "#    "}},
    {'+', {"     ", "  #  ", "  #  ", "#####", "  #  ", "  #  ", "     "}},
};

const Glyph& GlyphOf(char letter) {
  for (const Glyph& glyph : kGlyphs)
    if (glyph.letter == letter) return glyph;
  throw std::invalid_argument(std::string("there is no glyph for '") + letter + "'");
}

double Cell(const Glyph& glyph, int column, int row) {
  return column >= 0 && row >= 0 && column < kColumns && row < kRows &&
         glyph.rows[row][column] == '#';
}

// The start of each letter, in cells, and of a letter that would follow the last one.
std::vector<double> StartsOf(std::string_view text) {
  std::vector<double> starts{0};
  for (const char letter : text)
    starts.push_back(starts.back() + (letter == ' ' ? kBlank : kColumns) + kGap);
  return starts;
}

// The closeness of a position, in cells, to the centre of a stroke: 1 at the centre, 0 a cell away.
double Ink(std::string_view text, const std::vector<double>& starts, double u, double v) {
  const auto next = std::upper_bound(starts.begin(), starts.end(), u + kGap / 2);
  if (next == starts.begin() || next == starts.end()) return 0;
  const auto letter = static_cast<size_t>(next - starts.begin() - 1);
  const Glyph& glyph = GlyphOf(text[letter]);
  const double column = u - starts[letter] - 0.5, row = v - 0.5;
  const int c = static_cast<int>(std::floor(column)), r = static_cast<int>(std::floor(row));
  const double right = column - c, below = row - r;
  return (1 - below) * ((1 - right) * Cell(glyph, c, r) + right * Cell(glyph, c + 1, r)) +
         below * ((1 - right) * Cell(glyph, c, r + 1) + right * Cell(glyph, c + 1, r + 1));
}

void DrawDisc(Picture& picture, Point centre, double radius, Colour colour) {
  for (int y = 0; y < picture.height; ++y)
    for (int x = 0; x < picture.width; ++x)
      Blend(picture, x, y, colour,
            std::clamp(radius + 0.5 - std::hypot(x - centre.x, y - centre.y), 0.0, 1.0));
}

void Fill(Picture& picture, int left, int top, int width, int height, Colour colour) {
  for (int y = top; y < top + height; ++y)
    for (int x = left; x < left + width; ++x) Blend(picture, x, y, colour, 1);
}

}  // namespace

Quad Write(Picture& picture, const Line& line) {
  constexpr double kPi = 3.14159265358979323846;
  const double cell = line.height / kRows, angle = line.degrees * kPi / 180,
               cosine = std::cos(angle), sine = std::sin(angle);
  const std::vector<double> starts = StartsOf(line.text);
  const double columns = starts.back() - kGap;
  const auto place = [&](double u, double v) {
    return Point{line.x + cell * (u * cosine - v * sine), line.y + cell * (u * sine + v * cosine)};
  };
  const Quad corners = {place(0, 0), place(columns, 0), place(columns, kRows), place(0, kRows)};
  const auto [left, right] = std::minmax_element(corners.begin(), corners.end(),
                                                 [](Point a, Point b) { return a.x < b.x; });
  const auto [top, bottom] = std::minmax_element(corners.begin(), corners.end(),
                                                 [](Point a, Point b) { return a.y < b.y; });
  for (int y = static_cast<int>(top->y) - 2; y <= bottom->y + 2; ++y) {
    for (int x = static_cast<int>(left->x) - 2; x <= right->x + 2; ++x) {
      const double dx = (x - line.x) / cell, dy = (y - line.y) / cell;
      const double ink = Ink(line.text, starts, dx * cosine + dy * sine, dy * cosine - dx * sine);
      // An edge is about a pixel wide.
      Blend(picture, x, y, line.colour, std::clamp((ink - 1 + kStroke) * cell + 0.5, 0.0, 1.0));
    }
  }
  return corners;
}

Sample DrawSample() {
  Sample sample{Picture(720, 480, {236, 232, 222}), {}};
  Picture& picture = sample.picture;
  Fill(picture, 0, 330, 720, 150, {38, 70, 83});
  DrawDisc(picture, {630, 90}, 48, {231, 111, 81});
  DrawQuad(picture, {{{470, 190}, {560, 170}, {580, 260}, {490, 280}}}, {42, 157, 143}, 6);
  const Colour ink = {20, 20, 20}, red = {160, 30, 30}, light = {240, 240, 230};
  for (const Line& line : std::vector<Line>{{"CORACLE 2026", 40, 40, 42, 0, ink},
                                            {"ONE PERSON CARRIES IT", 44, 120, 21, 0, ink},
                                            {"DEPARTURE 10:45", 60, 190, 28, 9, red},
                                            {"PLATFORM 7", 60, 360, 36, 0, light},
                                            {"NEXT STOP: THE RIVER", 380, 400, 19, 0, light}})
    sample.places.push_back(Write(picture, line));
  return sample;
}
