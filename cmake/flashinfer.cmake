# Attention kernels of the Python package flashinfer-python, optional: sources are compiled from where the package is,
# nothing of it is kept here. Included behind cuda.cmake, to whose objects it adds. DF_FLASHINFER=AUTO takes it when CUDA is built and a package of a known version is found,
# ON fails without it. tools/fetch-flashinfer puts one where it is found; DF_FLASHINFER_ROOT names another: the folder
# that holds flashinfer/data, as pip installs it or a wheel unpacks to.
set(DF_FLASHINFER AUTO CACHE STRING "attention kernels of flashinfer-python: AUTO, ON, OFF")
set(DF_FLASHINFER_ROOT "" CACHE PATH "folder that holds flashinfer/data")
set(DF_FLASHINFER_VERSIONS 0.6.13) # calls into the package change between versions: these were tried

# In the variable: the folder, empty when there is none.
function(df_flashinfer_find out)
  set(places ${DF_FLASHINFER_ROOT})
  if(NOT places)
    file(GLOB fetched ${CMAKE_SOURCE_DIR}/build/flashinfer-*)
    find_program(DF_PYTHON NAMES python3)
    if(DF_PYTHON)
      # Found without being imported: that would import PyTorch.
      execute_process(
        COMMAND ${DF_PYTHON} -c "import importlib.util as u; s = u.find_spec('flashinfer'); print(s.submodule_search_locations[0] + '/..' if s else '')"
        OUTPUT_VARIABLE site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
    set(places ${fetched} ${site})
  endif()
  set(${out} "" PARENT_SCOPE)
  foreach(p ${places})
    if(EXISTS ${p}/flashinfer/data/include/flashinfer/attention/prefill.cuh AND EXISTS ${p}/flashinfer/data/csrc/xqa/mha.cu)
      get_filename_component(p ${p} REALPATH)
      set(${out} ${p} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

function(df_flashinfer_version root out)
  file(GLOB metadata ${root}/flashinfer_python-*.dist-info/METADATA)
  set(${out} "unknown" PARENT_SCOPE)
  foreach(m ${metadata})
    file(STRINGS ${m} line REGEX "^Version: " LIMIT_COUNT 1)
    string(REPLACE "Version: " "" line "${line}")
    set(${out} "${line}" PARENT_SCOPE)
  endforeach()
endfunction()

# Appends to the list `objects` one object of src/device/cuda/third/SOURCE.cu, named NAME, with further options. Machine
# code only: PTX would double the time, and each of these is large.
macro(df_flashinfer_object name source)
  set(object ${CMAKE_BINARY_DIR}/cuda/third/${name}.o)
  set(cu ${CMAKE_SOURCE_DIR}/src/device/cuda/third/${source}.cu)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda/third
    COMMAND ${DF_CUDA_NVCC} -c -std=c++17 -O3 ${gencode} --expt-relaxed-constexpr -diag-suppress 174,177,179
      -Xcompiler -fPIC,-fvisibility=hidden -DNDEBUG -DDF_HAVE_FLASHINFER=1 ${ARGN}
      # The package's own CCCL first: it is newer than that of some toolkits.
      -I ${data}/cccl/cub -I ${data}/cccl/libcudacxx/include -I ${data}/cccl/thrust -I ${data}/include -I ${data}/csrc/xqa
      -I ${CMAKE_SOURCE_DIR}/src -I ${CMAKE_SOURCE_DIR}/include -MD -MT ${object} -MF ${object}.d -o ${object} ${cu}
    DEPENDS ${cu}
    DEPFILE ${object}.d
    COMMENT "nvcc third/${name}"
    VERBATIM)
  list(APPEND objects ${object})
endmacro()

# In the variable: the objects. XQA wants one for each shape, FA2 one for each head width and mask.
function(df_flashinfer_objects root version out)
  set(data ${root}/flashinfer/data)
  set(objects "")
  set(gencode "")
  foreach(arch ${DF_CUDA_ARCHS})
    list(APPEND gencode -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  df_flashinfer_object(third_rows third_rows -fmad=false) # the 8-bit blocks have the bits of kernels.h
  df_flashinfer_object(fa2 fa2 "-DDF_FLASHINFER_VERSION=\"${version}\"")
  df_flashinfer_object(xqa xqa)
  foreach(head 64 128)
    foreach(mask 0 1 2)
      df_flashinfer_object(fa2_run_${head}_${mask} fa2_run -DDF_FA2_HEAD=${head} -DDF_FA2_MASK=${mask})
    endforeach()
    df_flashinfer_object(xqa_${head}_spec xqa_kernel -DHEAD_ELEMS=${head} -DSPEC_DEC=1)
    foreach(group RANGE 1 8)
      df_flashinfer_object(xqa_${head}_${group} xqa_kernel -DHEAD_ELEMS=${head} -DSPEC_DEC=0 -DHEAD_GRP_SIZE=${group})
    endforeach()
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

set(DF_FLASHINFER_FOUND OFF)
if(DF_FLASHINFER STREQUAL "ON" AND NOT DF_CUDA_ENABLED)
  message(FATAL_ERROR "DF_FLASHINFER=ON needs CUDA (DF_CUDA)")
elseif(NOT DF_FLASHINFER STREQUAL "OFF" AND DF_CUDA_ENABLED)
  df_flashinfer_find(DF_FLASHINFER_AT)
  set(DF_FLASHINFER_WHY "no flashinfer-python was found; tools/fetch-flashinfer fetches it")
  if(DF_FLASHINFER_AT)
    df_flashinfer_version(${DF_FLASHINFER_AT} DF_FLASHINFER_VERSION)
    if(DF_FLASHINFER_VERSION IN_LIST DF_FLASHINFER_VERSIONS)
      set(DF_FLASHINFER_FOUND ON)
    else()
      set(DF_FLASHINFER_WHY "flashinfer-python ${DF_FLASHINFER_VERSION} in ${DF_FLASHINFER_AT} is not one of ${DF_FLASHINFER_VERSIONS}")
    endif()
  endif()
  if(DF_FLASHINFER_FOUND)
    message(STATUS "flashinfer-python ${DF_FLASHINFER_VERSION}: ${DF_FLASHINFER_AT}")
    df_flashinfer_objects(${DF_FLASHINFER_AT} ${DF_FLASHINFER_VERSION} DF_FLASHINFER_OBJECTS)
    list(APPEND DF_CUDA_OBJECTS ${DF_FLASHINFER_OBJECTS})
    list(APPEND DF_CUDA_RUNTIME stdc++) # the package's planner is C++
    target_compile_definitions(dflash_objects PUBLIC DF_HAVE_FLASHINFER=1)
  elseif(DF_FLASHINFER STREQUAL "ON")
    message(FATAL_ERROR "DF_FLASHINFER=ON: ${DF_FLASHINFER_WHY}")
  else()
    message(STATUS "attention backends flashinfer and xqa: not built (${DF_FLASHINFER_WHY})")
  endif()
endif()
