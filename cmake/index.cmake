# Writes what clangd needs to follow the device templates: cmake -DOUTPUT=<folder> -P index.cmake
#   compile_commands.json   one entry for each template, and for each golden kernel, which
#                           instantiates them
#   kiln.yaml               a view of the file system in which templates/ is /kiln
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH root)
cmake_path(ABSOLUTE_PATH OUTPUT)

file(WRITE "${OUTPUT}/kiln.yaml" "{\"version\": 0, \"use-external-names\": true, \"roots\": [
  {\"type\": \"directory-remap\", \"name\": \"/kiln\", \"external-contents\": \"${root}/templates\"}
]}
")

# NVRTC's -default-device is clang's own rule for lambdas and constexpr functions.
set(arguments clang++ -xcuda -std=c++17 --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc
  -nocudalib -nostdinc -Wno-unknown-cuda-version -Wno-pragma-once-outside-header -Wno-cuda-compat
  -include "${root}/cmake/nvrtc_builtins.h" -ivfsoverlay "${OUTPUT}/kiln.yaml" -fsyntax-only)
list(TRANSFORM arguments REPLACE "(.+)" "\"\\1\"")
list(JOIN arguments ", " arguments)

file(GLOB_RECURSE files "${root}/templates/*.cuh" "${root}/tests/compile/golden/*.cu")
list(SORT files)
set(entries "")
foreach(file IN LISTS files)
  list(APPEND entries "{\"directory\": \"${root}\", \"file\": \"${file}\",
  \"arguments\": [${arguments}, \"${file}\"]}")
endforeach()
list(JOIN entries ",\n" entries)
file(WRITE "${OUTPUT}/compile_commands.json" "[\n${entries}\n]\n")
