# Where cuDNN and NCCL are: asked by zeepo's own build, and by zeepoConfig.cmake for programs that use the library, which
# may be built on another machine. The headers are private to zeepo's build.

# zeepo_find_cudnn(FOLDER): the target zeepo_cudnn, where libcudnn is in FOLDER/lib, or beside CUDA when FOLDER is empty.
macro(zeepo_find_cudnn folder)
  zeepo_find_gpu_library(cudnn "${folder}" libcudnn.so libcudnn.so.9)
  if(TARGET zeepo_cudnn)
    target_link_libraries(zeepo_cudnn INTERFACE CUDA::nvrtc)
  endif()
endmacro()

# zeepo_find_nccl(FOLDER): the same for the target zeepo_nccl.
macro(zeepo_find_nccl folder)
  zeepo_find_gpu_library(nccl "${folder}" libnccl.so libnccl.so.2)
endmacro()

macro(zeepo_find_gpu_library name folder)
  if("${folder}" STREQUAL "")
    find_library(${name}_library NAMES ${ARGN} HINTS ${CUDAToolkit_LIBRARY_DIR} NO_CACHE)
  else()
    find_library(${name}_library NAMES ${ARGN} PATHS ${folder}/lib NO_DEFAULT_PATH NO_CACHE)
  endif()
  if(${name}_library AND NOT TARGET zeepo_${name})
    add_library(zeepo_${name} INTERFACE IMPORTED)
    target_link_libraries(zeepo_${name} INTERFACE ${${name}_library})
  endif()
endmacro()
