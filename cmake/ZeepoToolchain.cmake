# Compiler flags for every target: warnings are errors, ccache where present, sanitizers on request.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # The sloppiness that precompiled headers need; and one checkout takes what another has compiled.
  set(ccache ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
      CCACHE_NOHASHDIR=true ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache})
  set(CMAKE_C_COMPILER_LAUNCHER ${ccache})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${ccache})
endif()

set(host_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror)
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${host_warnings};-Wpedantic>")
# Nothing outside of zeepo replaces its functions: calls within a file stay inlined, as in code for programs alone.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-semantic-interposition>")
# Every product and sum rounds as written; only a fused multiply-add that the code asks for may fuse.
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off;-fno-math-errno>")
# The same for code of a GPU. nvcc's own glue is not pedantic; 554: a conversion that `requires` rules out is never
# called; fmt 9 checks its format strings at compile time also by nvcc, but thinks that it cannot.
list(JOIN host_warnings "," cuda_host_warnings)
set(cuda_options --fmad=false --expt-relaxed-constexpr -Werror=all-warnings -diag-suppress=554
    -Xcompiler=${cuda_host_warnings},-ffp-contract=off,-fno-math-errno -DFMT_USE_CONSTEXPR=1)
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${cuda_options}>")

# Compiles several sources of a target at a time: what the compiler makes of the libraries' templates is made once for all
# of them. Not for debugging, where one source is compiled again and again.
function(zeepo_compile_together target)
  if(CMAKE_BUILD_TYPE STREQUAL "Debug")
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  # Each of them is a main file.
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>")
endfunction()

# What tests run with.
set(ZEEPO_TEST_ENVIRONMENT "")
set(ZEEPO_SIMD_SANITIZE_OPTIONS "")
set(ZEEPO_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)  # tests are compiled more often than run
if(ZEEPO_SANITIZE)
  # Light optimisation, and asserts on: these programs are built to be run once.
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1")
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${ZEEPO_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=${ZEEPO_SANITIZE})
  # What is freed is kept for a while, to find who still uses it: little of it, since tests compare memory with budgets.
  set(ZEEPO_TEST_ENVIRONMENT
      "ASAN_OPTIONS=quarantine_size_mb=32"
      "UBSAN_OPTIONS=print_stacktrace=1"
      "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(ZEEPO_TEST_OPTIONS -O0)  # in half the time
  endif()
  # clang takes half a minute a file to check the stack slots and pointer sums of code in vectors; their memory accesses
  # are checked all the same.
  if(ZEEPO_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(ZEEPO_SIMD_SANITIZE_OPTIONS -O2 -fno-sanitize=pointer-overflow "SHELL:-mllvm -asan-stack=0")
  endif()
  # Of the instruction sets, the widest that this machine has, whose vectors reach farthest, and the baseline.
  set(unused_target HWY_AVX3)
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo widest_vectors REGEX "^flags.* avx512bw" LIMIT_COUNT 1)
    if(widest_vectors)
      set(unused_target HWY_AVX2)
    endif()
  endif()
  list(APPEND ZEEPO_SIMD_SANITIZE_OPTIONS -DZEEPO_ALSO_DISABLED_TARGETS=${unused_target})
endif()
