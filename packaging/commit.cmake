# What a checkout is at: its commit, and "+changes" if a file that programs are made of differs from it. "unknown" for
# sources that are no checkout.
#
#   cmake -DSOURCE=DIR [-DHEADER=FILE] -P packaging/commit.cmake
#
# With a header: written there as TUSK_COMMIT, if it is not there already; else printed.
cmake_minimum_required(VERSION 3.25)
find_program(GIT git)
function(git result)
  execute_process(COMMAND ${GIT} -C ${SOURCE} ${ARGN} OUTPUT_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE code ERROR_QUIET)
  if(code EQUAL 0)
    set(${result} "${output}" PARENT_SCOPE)
  endif()
endfunction()

set(commit unknown)
if(GIT AND EXISTS ${SOURCE}/.git)
  git(head rev-parse --short=12 HEAD)
  git(changes status --porcelain -- CMakeLists.txt CMakePresets.json proto fsclient fsserver tests/support
      tests/simulation tests/system/wan tests/bench)
  if(head AND changes)
    set(commit "${head}+changes")
  elseif(head)
    set(commit ${head})
  endif()
endif()

if(HEADER)
  file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define TUSK_COMMIT \"@commit@\"\n" @ONLY)
else()
  message("${commit}")
endif()
