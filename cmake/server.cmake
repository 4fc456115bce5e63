# The HTTP server: a library of its own, so that libdflash needs no libevent. The page in src/server/web and the
# description in src/server/openapi become tables of bytes in the program.
file(GLOB SERVER_SOURCES CONFIGURE_DEPENDS src/server/*.c)
set(SERVER_TABLES "")
foreach(table web openapi)
  file(GLOB files CONFIGURE_DEPENDS src/server/${table}/*)
  set(out ${CMAKE_BINARY_DIR}/generated/${table}_files.c)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${CMAKE_SOURCE_DIR}/src/server/${table} -DTABLE=${table} -DOUT=${out} -P
      ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${files} cmake/embed.cmake
    VERBATIM)
  list(APPEND SERVER_TABLES ${out})
endforeach()
add_library(dflash_server STATIC ${SERVER_SOURCES} ${SERVER_TABLES})
target_include_directories(dflash_server PUBLIC src)
target_link_libraries(dflash_server PUBLIC dflash PkgConfig::EVENT)
