#pragma once
// Coracle's version; CMakeLists.txt reads it here.

#define CORACLE_VERSION_MAJOR 0
#define CORACLE_VERSION_MINOR 1
#define CORACLE_VERSION_PATCH 0
