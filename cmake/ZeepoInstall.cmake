# `cmake --install`: the program, the layers' libraries, their headers, and what find_package(zeepo) reads. Installed files
# name no path of the machine they were built on: the folder may be moved, and dependencies are found anew where it is used.
include(CMakePackageConfigHelpers)

set(zeepo_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/zeepo)

# zeepo_install_layer(NAME): called by zeepo_layer. The target is zeepo::NAME outside.
function(zeepo_install_layer name)
  set_target_properties(zeepo_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS zeepo_${name} EXPORT zeepo ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.h)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/zeepo/${name})
endfunction()

# After all layers: the target zeepo_library, zeepo::zeepo outside, brings all that zeepo.h includes.
function(zeepo_install_package)
  install(TARGETS zeepo RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${CMAKE_SOURCE_DIR}/src/zeepo/zeepo.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/zeepo)
  install(TARGETS zeepo_library EXPORT zeepo)
  install(EXPORT zeepo FILE zeepoTargets.cmake NAMESPACE zeepo:: DESTINATION ${zeepo_package_folder})
  foreach(part MPI URING HTTPLIB CUDNN NCCL)
    set(ZEEPO_PACKAGE_${part} OFF)
  endforeach()
  if(MPI_CXX_FOUND)
    set(ZEEPO_PACKAGE_MPI ON)
  endif()
  if(URING_FOUND)
    set(ZEEPO_PACKAGE_URING ON)
  endif()
  if(HTTPLIB_FOUND)
    set(ZEEPO_PACKAGE_HTTPLIB ON)
  endif()
  if(ZEEPO_CUDNN_FOLDER STREQUAL cuda/cudnn)
    set(ZEEPO_PACKAGE_CUDNN ON)
  endif()
  if(ZEEPO_NCCL_FOLDER STREQUAL nccl)
    set(ZEEPO_PACKAGE_NCCL ON)
  endif()
  configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/zeepoConfig.cmake.in ${CMAKE_BINARY_DIR}/zeepoConfig.cmake
                                INSTALL_DESTINATION ${zeepo_package_folder} NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/zeepoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/zeepoConfig.cmake ${CMAKE_BINARY_DIR}/zeepoConfigVersion.cmake
                ${CMAKE_SOURCE_DIR}/cmake/ZeepoGpuLibraries.cmake DESTINATION ${zeepo_package_folder})
endfunction()
