# Headers that nearly every source includes, parsed once a build: of the standard library and of the libraries that zeepo
# stands on, never zeepo's own, so that they change with a machine alone.
#
# Not for debugging: a debug build shows that each source includes what it uses.
set(ZEEPO_COMMON_HEADERS <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstdint> <deque>
    <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <optional> <set> <span> <sstream> <string>
    <string_view> <thread> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)

# zeepo_common_headers(NAME headers...): a target of which others reuse the headers. Its flags must be theirs.
function(zeepo_common_headers name)
  set(source ${CMAKE_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)
  target_precompile_headers(${name} PRIVATE ${ZEEPO_COMMON_HEADERS} ${ARGN})
endfunction()

# zeepo_use_headers(TARGET HEADERS): those that zeepo_common_headers has made. In these g++ 12 warns of what it does not warn of
# in headers of the system: faults of its own in how it sees std::string.
function(zeepo_use_headers target headers)
  if(CMAKE_BUILD_TYPE STREQUAL "Debug")
    return()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds> $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow> $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overread>)
endfunction()
