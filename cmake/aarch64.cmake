# Toolchain file: 64-bit Arm with Debian's cross compiler (gcc-aarch64-linux-gnu, libc6-dev-arm64-cross).
#   cmake -S . -B build/aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake
# The libraries have to be there for that architecture too (Debian: dpkg --add-architecture arm64 and the :arm64 packages);
# with -DDF_KERNELS_ONLY=ON the kernels and their tests are built, which need none.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_LIBDIR} "/usr/lib/aarch64-linux-gnu/pkgconfig")
find_program(DF_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(DF_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${DF_QEMU})
endif()
