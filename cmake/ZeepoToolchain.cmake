# Compiler flags for every target: warnings are errors, ccache where present, sanitizers on request.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror)
# Every product and sum rounds as written; only a fused multiply-add that the code asks for may fuse.
add_compile_options(-ffp-contract=off -fno-math-errno)

if(ZEEPO_SANITIZE)
  add_compile_options(-fsanitize=${ZEEPO_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${ZEEPO_SANITIZE})
endif()
if(ZEEPO_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # the fuzzer is guided by what the libraries reach, not only the target
endif()
