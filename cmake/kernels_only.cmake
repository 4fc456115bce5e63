# The kernels and their tests alone: no library but the C library, tests against tests/support/small/cmocka.h. For
# machines that have only a compiler, and cross builds (tests/tools/neon_qemu.sh).
find_package(Threads REQUIRED)
file(GLOB_RECURSE LIB_SOURCES CONFIGURE_DEPENDS src/base/*.c src/kernels/*.c)
df_isa(LIB_SOURCES)
file(GLOB KERNEL_TESTS CONFIGURE_DEPENDS tests/kernels/test_*.c)
list(FILTER KERNEL_TESTS EXCLUDE REGEX "/test_quant\\.c$") # reads JSON; has no tiers
add_library(dflash_kernels STATIC ${LIB_SOURCES} tests/support/small/small_cmocka.c tests/support/checkkern.c
  tests/support/kernel_data.c)
target_include_directories(dflash_kernels PUBLIC include src tests tests/support/small)
target_link_libraries(dflash_kernels PUBLIC Threads::Threads m)
foreach(t ${KERNEL_TESTS} ${CMAKE_SOURCE_DIR}/tests/support/small/list_tiers.c)
  get_filename_component(name ${t} NAME_WE)
  add_executable(${name} ${t})
  target_link_libraries(${name} PRIVATE dflash_kernels)
  if(CMAKE_CROSSCOMPILING)
    target_link_options(${name} PRIVATE -static) # so that an emulator needs no libraries
  endif()
  target_compile_options(${name} PRIVATE -fno-tree-vectorize) # gcc 12 for aarch64 fails on a loop of test_vec.c
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endforeach()
