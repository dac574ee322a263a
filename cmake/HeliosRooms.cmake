# One target a room. helios_room() makes the static library of a room; its link line repeats the room table.

add_library(helios_options INTERFACE)
target_include_directories(helios_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(helios_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow=local -Wno-missing-field-initializers>)
if(HELIOS_WERROR)
  target_compile_options(helios_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(HELIOS_SANITIZE)
  add_compile_options(-fsanitize=${HELIOS_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${HELIOS_SANITIZE})
  if(HELIOS_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=all)
  endif()
  if(HELIOS_SANITIZE MATCHES "thread")
    add_compile_options(-Wno-tsan)  # Asio uses fences, which GCC's TSan warns of
  endif()
endif()

# A clean build spends most of its time on headers. So the standard ones and fmt are compiled once, and a room's sources
# a few to a unit: helpers in unnamed namespaces have names of their own within a room. A source still includes what it
# uses; the debug and tsan presets build without either, and so would find out.
option(HELIOS_PRECOMPILED "Compile common headers once" ON)
option(HELIOS_UNITY "Compile a room's sources a few to a unit" ON)
set(HELIOS_COMMON_HEADERS <fmt/format.h> <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <functional>
  <map> <memory> <mutex> <optional> <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>)
# GCC 12 sees overflows that are none in a std::string whose header was precompiled; without, it looks for real ones.
set(HELIOS_PRECOMPILED_OPTIONS -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread -Wno-restrict)
if(HELIOS_PRECOMPILED)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/room_headers.cc CONTENT "")
  add_library(helios_room_headers STATIC ${CMAKE_BINARY_DIR}/room_headers.cc)
  target_link_libraries(helios_room_headers PRIVATE helios_options fmt::fmt)
  target_precompile_headers(helios_room_headers PRIVATE ${HELIOS_COMMON_HEADERS})
endif()

# helios_room(NAME SOURCES ... LINKS ... [PRIVATE_LINKS ...])
# An include-only room leaves SOURCES empty and becomes an interface library.
function(helios_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  if(ROOM_SOURCES)
    add_library(${name} STATIC ${ROOM_SOURCES})
    target_link_libraries(${name} PUBLIC helios_options ${ROOM_LINKS} PRIVATE ${ROOM_PRIVATE_LINKS})
    # An archive needs nothing of what it will be linked with: above all not the kernels of another device.
    set_target_properties(${name} PROPERTIES OPTIMIZE_DEPENDENCIES ON)
    if(NOT "helios_simd" IN_LIST ROOM_PRIVATE_LINKS)  # those have flags of their own, and are compiled for several targets
      if(TARGET helios_room_headers)
        target_precompile_headers(${name} REUSE_FROM helios_room_headers)
        target_compile_options(${name} PRIVATE ${HELIOS_PRECOMPILED_OPTIONS})
      endif()
      if(HELIOS_UNITY)
        set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
        target_compile_options(${name} PRIVATE -Wno-subobject-linkage)  # a source is then included by the unit
      endif()
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE helios_options ${ROOM_LINKS})
  endif()
endfunction()

# helios_cuda_unit(RESULT NAME FILES...): RESULT lists the CUDA files, absolute paths, or the one source that includes
# them all: nvcc reads the toolkit's headers once a source and architecture, which takes longer than most kernels do.
function(helios_cuda_unit result name)
  set(sources ${ARGN})
  if(HELIOS_UNITY)
    list(TRANSFORM sources REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE includes)
    list(JOIN includes "" includes)
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/${name}_unit.cu)
    file(CONFIGURE OUTPUT ${sources} CONTENT "${includes}" @ONLY)
  endif()
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# helios_device_kernels(ROOM): helios_device_ROOM stands for the kernels of kernels/ROOM on the device that a program is
# linked for, by its property HELIOS_DEVICE: the CPU's; simt, for a test marked EMULATED, the CUDA sources on the
# emulator; cuda, for the CUDA module, the same sources from nvcc. Rooms of the worker link this, so that the same
# objects make all three.
function(helios_device_kernels room)
  add_library(helios_device_${room} INTERFACE)
  set(device $<TARGET_PROPERTY:HELIOS_DEVICE>)
  target_link_libraries(helios_device_${room} INTERFACE
    $<IF:$<STREQUAL:${device},simt>,helios_${room}_simt,$<IF:$<STREQUAL:${device},cuda>,helios_${room}_cuda,helios_kernels_${room}>>)
endfunction()

# The same for the tests: a program's sources are one unit, and tests that need the same headers share a program; so a
# helper has a name of its own in its program. An executable, because what it shares must have an executable's flags.
add_custom_target(helios_sanitized_tests)
set(HELIOS_TEST_OPTIONS $<$<CONFIG:Release>:-Og>)  # what is tested is -O2; assertions compile in half of -O1's time so
if(HELIOS_TESTS)
  find_package(GTest REQUIRED)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cc CONTENT "")
  add_executable(helios_test_headers ${CMAKE_BINARY_DIR}/test_headers.cc)
  target_link_libraries(helios_test_headers PRIVATE helios_options fmt::fmt GTest::gtest_main)
  target_compile_options(helios_test_headers PRIVATE ${HELIOS_TEST_OPTIONS})
  target_precompile_headers(helios_test_headers PRIVATE <gtest/gtest.h> ${HELIOS_COMMON_HEADERS} <filesystem> <fstream>
    <random> <sstream> <thread>)
  add_library(helios_test_main STATIC ${PROJECT_SOURCE_DIR}/tests/support/test_main.cc)
  target_link_libraries(helios_test_main PUBLIC helios_options GTest::gtest fmt::fmt)
endif()

# helios_test_program(NAME): an executable of tests, to which helios_test() adds.
function(helios_test_program name)
  add_executable(${name})
  target_link_libraries(${name} PRIVATE helios_test_main)
  target_compile_options(${name} PRIVATE ${HELIOS_TEST_OPTIONS} ${HELIOS_PRECOMPILED_OPTIONS} -Wno-subobject-linkage)
  target_precompile_headers(${name} REUSE_FROM helios_test_headers)
  if(HELIOS_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# helios_test(NAME LABEL unit|cluster|fuzz|gpu SOURCES ... LINKS ... [IN program] [TIMEOUT seconds]
#             [SANITIZED] [EMULATED])
# IN: the program that holds the test together with others of its room; without, it has one of its own name. Those of a
# program are SANITIZED or EMULATED alike.
# SANITIZED: one of the tests that also run under ASan and UBSan in CI (target helios_sanitized_tests, label sanitized).
# EMULATED: linked with the CUDA sources on the emulator instead of the CPU's kernels; left out without
# HELIOS_EMULATED_TESTS.
option(HELIOS_EMULATED_TESTS "Build the tests of the CUDA sources on the emulator" ON)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/launches)
function(helios_test name)
  cmake_parse_arguments(TEST "SANITIZED;EMULATED" "LABEL;TIMEOUT;IN" "SOURCES;LINKS" ${ARGN})
  if(NOT HELIOS_TESTS OR (TEST_EMULATED AND NOT HELIOS_EMULATED_TESTS))
    return()
  endif()
  set(program ${name})
  set(files ${TEST_SOURCES})
  list(FILTER files INCLUDE REGEX "_test.cc$")
  set(only)
  if(TEST_IN)
    set(program ${TEST_IN})
    list(TRANSFORM files REPLACE ".*/" "" OUTPUT_VARIABLE only)
    list(JOIN only "," only)
    set(only --of=${only})
    add_custom_target(${name} DEPENDS ${program})
    file(REMOVE ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${name})  # a former program of its own
  endif()
  if(NOT TARGET ${program})
    helios_test_program(${program})
  endif()
  target_sources(${program} PRIVATE ${TEST_SOURCES})
  list(REMOVE_ITEM TEST_SOURCES ${files})  # what counts allocations replaces operator new: a unit would inline it
  if(TEST_SOURCES)
    set_source_files_properties(${TEST_SOURCES} TARGET_DIRECTORY ${program} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  target_link_libraries(${program} PRIVATE ${TEST_LINKS})
  if(TEST_EMULATED)
    set_target_properties(${program} PROPERTIES HELIOS_DEVICE simt)
    target_compile_definitions(${program} PRIVATE HELIOS_EMULATED_DEVICE)
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${program} ${only})
  set(labels ${TEST_LABEL})
  if(TEST_SANITIZED OR TEST_LABEL STREQUAL "fuzz")
    list(APPEND labels sanitized)
    add_dependencies(helios_sanitized_tests ${program})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${TEST_TIMEOUT})
  if(HELIOS_SANITIZE STREQUAL "thread")
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp)
  endif()
  if(TEST_EMULATED)  # each leaves a log of the kernels that it launched: tests/gpu looks whether all were
    set(log ${CMAKE_BINARY_DIR}/launches/${name})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT HELIOS_SIMT_LAUNCHES=${log})
    set_tests_properties(${name} PROPERTIES FIXTURES_SETUP simt_launches)
    set_property(GLOBAL APPEND PROPERTY HELIOS_SIMT_LAUNCHES $<TARGET_FILE:${program}>=${log})
  endif()
endfunction()
