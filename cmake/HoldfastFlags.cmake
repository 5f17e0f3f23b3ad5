# Language level, warnings and hardening of every room; asserts (CHECK) stay on in release.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(holdfast_flags INTERFACE)
target_compile_definitions(holdfast_flags INTERFACE _GNU_SOURCE HOLDFAST_VERSION="${PROJECT_VERSION}")
target_include_directories(holdfast_flags INTERFACE "${CMAKE_SOURCE_DIR}")
target_compile_options(holdfast_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wswitch-enum -Wstrict-prototypes -Wvla -Wformat=2
    -Werror -fno-common -fno-omit-frame-pointer -fstack-protector-strong -fvisibility=hidden)
# librdkafka's RD_KAFKA_V_… check their arguments' types with statement expressions, which both compilers know.
target_compile_options(holdfast_flags INTERFACE $<$<C_COMPILER_ID:Clang>:-Wno-gnu-statement-expression>)
target_link_options(holdfast_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
target_link_libraries(holdfast_flags INTERFACE Threads::Threads)

if(SANITIZE)
    target_compile_options(holdfast_flags INTERFACE -fsanitize=${SANITIZE} -fno-sanitize-recover=all -g)
    target_link_options(holdfast_flags INTERFACE -fsanitize=${SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(holdfast_flags INTERFACE -O2 -g -D_FORTIFY_SOURCE=2
        -fstack-clash-protection $<$<C_COMPILER_ID:GNU>:-fcf-protection>)
    string(REPLACE "-O3" "" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
    string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
endif()
