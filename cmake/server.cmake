# The HTTP server: a library of its own, so that libdflash needs no libevent. The page in src/server/web becomes a table
# of bytes in the program.
file(GLOB SERVER_SOURCES CONFIGURE_DEPENDS src/server/*.c)
file(GLOB WEB_FILES CONFIGURE_DEPENDS src/server/web/*)
set(WEB_TABLE ${CMAKE_BINARY_DIR}/generated/web_files.c)
add_custom_command(
  OUTPUT ${WEB_TABLE}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${CMAKE_SOURCE_DIR}/src/server/web -DOUT=${WEB_TABLE} -P
    ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${WEB_FILES} cmake/embed.cmake
  VERBATIM)
add_library(dflash_server STATIC ${SERVER_SOURCES} ${WEB_TABLE})
target_include_directories(dflash_server PUBLIC src)
target_link_libraries(dflash_server PUBLIC dflash PkgConfig::EVENT)
