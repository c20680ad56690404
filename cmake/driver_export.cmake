# Lets a driver that is a project of its own (engines/mlx) link culprit's driver kit from this build tree:
#   culprit-build.cmake     the compiler and flags of this tree, so that both halves of a driver have one ABI and the same sanitizers
#   culprit-targets.cmake   imported targets of the kit and of every layer below it
#   culprit-archives.txt    the archives that end up in a driver, one a line: a driver is stale when one of them changed
if(TARGET culprit_kit)
  set(layers base num tensor format decode fault trace engine)
  list(TRANSFORM layers PREPEND culprit_)
  export(TARGETS culprit_flags ${layers} culprit_kit FILE ${PROJECT_BINARY_DIR}/culprit-targets.cmake)

  set(settings "")
  foreach(name CMAKE_CXX_COMPILER CMAKE_CXX_COMPILER_LAUNCHER CMAKE_CXX_FLAGS CMAKE_EXE_LINKER_FLAGS CMAKE_PREFIX_PATH CMAKE_BUILD_TYPE)
    string(APPEND settings "set(${name} [==[${${name}}]==])\n")
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/culprit-build.cmake CONTENT "${settings}" @ONLY)

  set(archives culprit_kit)
  foreach(layer IN LISTS layers)
    get_target_property(type ${layer} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND archives ${layer})
    endif()
  endforeach()
  list(TRANSFORM archives REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  list(JOIN archives "\n" archives)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/culprit-archives.txt CONTENT "${archives}\n")
  add_dependencies(culprit culprit_kit)  # `culprit engine add` links it
endif()
