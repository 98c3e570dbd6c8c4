include(GoogleTest)

# Code that reads what strangers wrote: in a build with fuzz targets, these layers tell the fuzzer where they have been.
set(ZEEPO_FUZZED_LAYERS base model data chat metrics train)

# zeepo_layer(NAME LAYERS below... LIBRARIES libs... BACKENDS folders...): one folder of src/zeepo as one static library.
#
# LAYERS are those it may include; these lists are the layer table of docs/tour.md. Sources are all .cpp files of the
# folder, and all .cpp and .cu files of the backend folders named in BACKENDS. Headers are included as "zeepo/folder/file.h";
# those of the folder itself are installed, those of backend folders are private.
function(zeepo_layer name)
  cmake_parse_arguments(LAYER "" "" "LAYERS;LIBRARIES;BACKENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  foreach(backend IN LISTS LAYER_BACKENDS)
    file(GLOB backend_sources CONFIGURE_DEPENDS
         ${CMAKE_CURRENT_SOURCE_DIR}/${name}/${backend}/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/${name}/${backend}/*.cu)
    list(APPEND sources ${backend_sources})
  endforeach()
  if(sources)
    add_library(zeepo_${name} STATIC ${sources})
    set(scope PUBLIC)
    set(headers zeepo_headers)
    if(ZEEPO_FUZZ AND name IN_LIST ZEEPO_FUZZED_LAYERS)
      target_compile_options(zeepo_${name} PRIVATE -fsanitize=fuzzer-no-link)
      set(headers zeepo_fuzzed_headers)
    endif()
    if(NOT name STREQUAL "kernels")  # whose sources are compiled once for each instruction set
      zeepo_use_headers(zeepo_${name} ${headers})
      zeepo_compile_together(zeepo_${name})
    else()
      target_compile_options(zeepo_${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${ZEEPO_SIMD_SANITIZE_OPTIONS}>")
    endif()
  else()
    add_library(zeepo_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(zeepo_${name} ${scope} $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  foreach(layer IN LISTS LAYER_LAYERS)
    target_link_libraries(zeepo_${name} ${scope} zeepo_${layer})
  endforeach()
  target_link_libraries(zeepo_${name} ${scope} ${LAYER_LIBRARIES})
  zeepo_install_layer(${name})
endfunction()

# zeepo_test(FOLDER layers...): tests/FOLDER/*_test.cpp as one program, found by CTest case by case as FOLDER/Suite.Case.
function(zeepo_test folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(test_${folder} ${sources})
  target_include_directories(test_${folder} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(test_${folder} PRIVATE ${ZEEPO_TEST_OPTIONS})
  foreach(layer IN LISTS ARGN)
    target_link_libraries(test_${folder} PRIVATE zeepo_${layer})
  endforeach()
  target_link_libraries(test_${folder} PRIVATE test_places GTest::gtest_main)
  zeepo_use_headers(test_${folder} test_headers)
  zeepo_compile_together(test_${folder})
  add_dependencies(tests test_${folder})
  gtest_discover_tests(test_${folder} TEST_PREFIX ${folder}/ DISCOVERY_MODE PRE_TEST
                       PROPERTIES TIMEOUT 300 ENVIRONMENT "${ZEEPO_TEST_ENVIRONMENT}")
endfunction()

# zeepo_fuzz(NAME layers...): fuzz/NAME.cpp as a libFuzzer target, run for a short time as the test fuzz/NAME.
#
# Inputs that reached new code are kept in the build directory; fuzz/corpus/NAME, where there is one, is where it starts.
function(zeepo_fuzz name)
  add_executable(fuzz_${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/${name}.cpp)
  target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  foreach(layer IN LISTS ARGN)
    target_link_libraries(fuzz_${name} PRIVATE zeepo_${layer})
  endforeach()
  add_dependencies(tests fuzz_${name})
  set(found ${CMAKE_BINARY_DIR}/corpus/${name})
  file(MAKE_DIRECTORY ${found})
  set(seeds ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name})
  if(NOT EXISTS ${seeds})
    set(seeds "")
  endif()
  add_test(NAME fuzz/${name}
           COMMAND fuzz_${name} -max_total_time=${ZEEPO_FUZZ_SECONDS} -timeout=10 -rss_limit_mb=4096 -print_final_stats=1
                   -artifact_prefix=${CMAKE_BINARY_DIR}/found-${name}- ${found} ${seeds})
  set_tests_properties(fuzz/${name} PROPERTIES LABELS fuzz TIMEOUT 300 ENVIRONMENT "${ZEEPO_TEST_ENVIRONMENT}")
endfunction()
