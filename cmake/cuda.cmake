# The CUDA device's kernels: device code by nvcc, called by rule, so that the project stays a C project. Included behind
# the target dflash_objects; df_cuda_link() is called once when everybody has put objects into DF_CUDA_OBJECTS.
#
#   DF_CUDA        AUTO (when nvcc is found; never with sanitizers or fuzzing), ON, OFF
#   DF_CUDA_ARCHS  architectures with machine code, e.g. "80;86;89;90a;100;103;120;121"; PTX of the newest plain one that is
#                  not above DF_CUDA_PTX goes along, for cards that came later
#
# Sets DF_CUDA_ENABLED, DF_CUDA_NVCC, DF_CUDA_GENCODE, DF_CUDA_INCLUDE, DF_CUDA_OBJECTS, DF_CUDA_RUNTIME.
set(DF_CUDA AUTO CACHE STRING "the CUDA device: AUTO (when nvcc is found), ON, OFF")
set_property(CACHE DF_CUDA PROPERTY STRINGS AUTO ON OFF)
set(DF_CUDA_ARCHS "90a" CACHE STRING "CUDA architectures with machine code")
set(DF_CUDA_PTX "90" CACHE STRING "CUDA architecture of the PTX for other cards")
set(DF_CUDA_ENABLED OFF)
set(DF_CUDA_OBJECTS "")

if(DF_CUDA STREQUAL "ON" OR (DF_CUDA STREQUAL "AUTO" AND NOT DF_SANITIZE AND NOT DF_FUZZ AND NOT CMAKE_CROSSCOMPILING))
  find_program(DF_CUDA_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(DF_CUDA_NVCC)
    get_filename_component(DF_CUDA_ROOT ${DF_CUDA_NVCC} REALPATH)
    get_filename_component(DF_CUDA_ROOT ${DF_CUDA_ROOT} DIRECTORY)
    get_filename_component(DF_CUDA_ROOT ${DF_CUDA_ROOT} DIRECTORY)
    find_library(DF_CUDART_STATIC libcudart_static.a HINTS ${DF_CUDA_ROOT}/lib64 ${DF_CUDA_ROOT}/targets/x86_64-linux/lib
      ${DF_CUDA_ROOT}/targets/sbsa-linux/lib ${DF_CUDA_ROOT}/lib)
    find_path(DF_CUDA_INCLUDE cuda_runtime_api.h HINTS ${DF_CUDA_ROOT}/include ${DF_CUDA_ROOT}/targets/x86_64-linux/include
      ${DF_CUDA_ROOT}/targets/sbsa-linux/include)
  endif()
  if(DF_CUDA_NVCC AND DF_CUDART_STATIC AND DF_CUDA_INCLUDE)
    set(DF_CUDA_ENABLED ON)
  elseif(DF_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DF_CUDA=ON, but nvcc, libcudart_static.a or cuda_runtime_api.h was not found: put nvcc on PATH or "
      "set CUDA_HOME to the toolkit's folder")
  endif()
endif()

# Warnings, and what keeps C linkers and C callers happy: no C++ runtime is linked.
set(DF_CUDA_HOST -fPIC,-Wall,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-fvisibility=hidden)
# The arithmetic contract (kernels/kernels.h): nothing contracted, IEEE division and square root, subnormals kept.
set(DF_CUDA_EXACT -fmad=false -prec-div=true -prec-sqrt=true -ftz=false)

if(DF_CUDA_ENABLED)
  set(DF_CUDA_RUNTIME ${DF_CUDART_STATIC} Threads::Threads ${CMAKE_DL_LIBS} rt)
  set(DF_CUDA_GENCODE "")
  set(DF_CUDA_BUILT "")
  foreach(arch ${DF_CUDA_ARCHS})
    list(APPEND DF_CUDA_GENCODE -gencode arch=compute_${arch},code=sm_${arch})
    string(APPEND DF_CUDA_BUILT "sm_${arch} ")
  endforeach()
  list(APPEND DF_CUDA_GENCODE -gencode arch=compute_${DF_CUDA_PTX},code=compute_${DF_CUDA_PTX})
  string(APPEND DF_CUDA_BUILT "compute_${DF_CUDA_PTX}")
  set(DF_CUDA_FAULT "")
  if(DF_FAULT_INJECTION)
    set(DF_CUDA_FAULT -DDF_FAULT_INJECTION=1)
  endif()
  file(GLOB DF_CUDA_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cuda/*.cu)
  foreach(f ${DF_CUDA_SOURCES})
    get_filename_component(name ${f} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
      COMMAND ${DF_CUDA_NVCC} -std=c++17 -O3 ${DF_CUDA_EXACT} ${DF_CUDA_GENCODE} -Xcompiler ${DF_CUDA_HOST}
        "-DDF_CUDA_BUILT_ARCHS=\"${DF_CUDA_BUILT}\"" ${DF_CUDA_FAULT} -I ${CMAKE_SOURCE_DIR}/src -I ${CMAKE_SOURCE_DIR}/include
        -MD -MT ${object} -MF ${object}.d -c ${f} -o ${object}
      DEPENDS ${f}
      DEPFILE ${object}.d
      COMMENT "nvcc ${name}.cu"
      VERBATIM)
    list(APPEND DF_CUDA_OBJECTS ${object})
  endforeach()
  target_compile_definitions(dflash_objects PUBLIC DF_HAVE_CUDA=1)
  target_include_directories(dflash_objects SYSTEM PUBLIC ${DF_CUDA_INCLUDE})
  message(STATUS "CUDA device: ${DF_CUDA_BUILT} (${DF_CUDA_NVCC})")
endif()

# The objects become part of libdflash; its users link the CUDA runtime, which finds the driver when it is first called.
function(df_cuda_link)
  if(DF_CUDA_ENABLED)
    target_sources(dflash PRIVATE ${DF_CUDA_OBJECTS})
    set_source_files_properties(${DF_CUDA_OBJECTS} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    target_link_libraries(dflash PUBLIC ${DF_CUDA_RUNTIME})
  endif()
endfunction()

# Tests of the kernels: on a card (tests/cuda, run by hand or where there is one), and the same cases against the same
# sources emulated on the host, which needs a C++ compiler and no CUDA at all. The benchmark.
function(df_cuda_tests)
  file(GLOB cases CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/*.c)
  list(FILTER cases EXCLUDE REGEX "/dev_cuda\\.c$")
  list(APPEND cases ${CMAKE_SOURCE_DIR}/tests/support/kernel_data.c)
  if(DF_CUDA_ENABLED)
    add_executable(test_cuda_kernels ${cases} tests/cuda/dev_cuda.c)
    target_include_directories(test_cuda_kernels PRIVATE src tests)
    target_link_libraries(test_cuda_kernels PRIVATE dflash)
    set_target_properties(test_cuda_kernels PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    if(DF_FLASHINFER_FOUND)
      add_executable(test_third_attn tests/cuda/third/test_third_attn.c tests/cuda/third/third_rig.c)
      target_include_directories(test_third_attn PRIVATE src tests)
      target_link_libraries(test_third_attn PRIVATE dflash)
      set_target_properties(test_third_attn PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    endif()
    add_executable(bench_cuda bench/cuda/bench_cuda.c bench/cuda/bench_model.c)
    target_include_directories(bench_cuda PRIVATE src bench)
    target_link_libraries(bench_cuda PRIVATE dflash)
  endif()
  find_program(DF_CXX NAMES c++ g++ clang++)
  if(NOT DF_CXX OR DF_SANITIZE OR DF_FUZZ OR CMAKE_CROSSCOMPILING) # fibers are beyond the sanitizers
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cuda/*.cu ${CMAKE_SOURCE_DIR}/tests/cuda/emu/*.cpp)
  set(emulated ${DF_CXX} -std=c++17 -O2 -g -fPIE -ffp-contract=off -fno-strict-aliasing -Wall -Wextra -Wno-unknown-pragmas
    -x c++ -DDF_CUDA_EMULATED=1 -D_POSIX_C_SOURCE=200809L -I ${CMAKE_SOURCE_DIR}/src -I ${CMAKE_SOURCE_DIR}/include
    -I ${CMAKE_SOURCE_DIR}/tests/cuda/emu -MD)
  set(objects "")
  foreach(f ${sources})
    get_filename_component(name ${f} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda_emu/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda_emu
      COMMAND ${emulated} -MT ${object} -MF ${object}.d -c ${f} -o ${object}
      DEPENDS ${f}
      DEPFILE ${object}.d
      COMMENT "emulated ${name}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(DF_CUDA_EMU_OBJECTS ${objects} PARENT_SCOPE) # for df_cuda_engine_test (tests.cmake)
  # What lies around the kernels of flashinfer-python is this project's own, and needs no package here.
  set(third ${CMAKE_BINARY_DIR}/cuda_emu/third_rows.o)
  add_custom_command(
    OUTPUT ${third}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda_emu
    COMMAND ${emulated} -MT ${third} -MF ${third}.d -c ${CMAKE_SOURCE_DIR}/tests/cuda/third/emu_third.cpp -o ${third}
    DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/third/emu_third.cpp
    DEPFILE ${third}.d
    COMMENT "emulated third_rows"
    VERBATIM)
  set_source_files_properties(${third} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_executable(test_third_emulated tests/cuda/third/test_third_rows.c tests/cuda/emu/dev_emu.c ${third} ${objects})
  target_include_directories(test_third_emulated PRIVATE src tests)
  target_link_libraries(test_third_emulated PRIVATE dflash_test_support stdc++)
  set_target_properties(test_third_emulated PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_executable(test_cuda_emulated ${cases} tests/cuda/emu/dev_emu.c tests/cuda/emu/self_emu.c ${objects})
  target_include_directories(test_cuda_emulated PRIVATE src tests)
  target_link_libraries(test_cuda_emulated PRIVATE dflash stdc++)
  set_target_properties(test_cuda_emulated PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()
