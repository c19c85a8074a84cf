#include <coracle/edit/set_shape.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

namespace coracle {
namespace {

TEST(SetShapes, WhatFollowsFromThem) {
  ProgramDesc main, startup;
  Builder b(main, startup);
  const Variable x = b.Data("x", {-1, 3, -1, -1});
  const Variable y = b.Conv2d(x, {.num_filters = 4, .filter_size = 3});
  SetShapes(main, {{"x", Shape{2, 3, 8, 10}}}, DefaultOps());
  EXPECT_EQ(main.Root().FindVar(y.name())->shape(), (Shape{2, 4, 6, 8}));
}

TEST(SetShapes, RefusesWhatIsNotThereOrDoesNotFit) {
  ProgramDesc main, startup;
  Builder b(main, startup);
  const Variable x = b.Data("x", {-1, 3});
  b.Fc(x, {.size = 2});
  EXPECT_NE(ErrorOf([&] {
              SetShapes(main, {{"y", Shape{1}}}, DefaultOps());
            }).find("'y'"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              SetShapes(main, {{"x", Shape{1, 4}}}, DefaultOps());
            }).find("is declared"),
            std::string::npos);
}

}  // namespace
}  // namespace coracle
