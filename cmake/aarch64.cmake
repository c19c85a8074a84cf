# Cross-compiles for 64-bit ARM on Debian 12: cmake --toolchain cmake/aarch64.cmake. Needs g++-aarch64-linux-gnu, the
# libraries of scripts/packages.txt for arm64 (dpkg --add-architecture arm64), protoc and esbuild of this machine, and
# qemu-user for `cmake --install`, which asks the command for its help.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# Not the libraries of this machine.
set(CMAKE_IGNORE_PREFIX_PATH /usr/lib/x86_64-linux-gnu)
set(PKG_CONFIG_EXECUTABLE aarch64-linux-gnu-pkg-config)
find_program(qemu_program qemu-aarch64 NO_CMAKE_FIND_ROOT_PATH)
if(qemu_program)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${qemu_program} -L /usr/aarch64-linux-gnu)
endif()
