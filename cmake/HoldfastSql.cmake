# The SQL of schemas/sql as bytes inside of the program, in the order in which a migration runs it.
#
# Included as a module it defines holdfast_embed_sql(OUTPUT); run as a script (cmake -P) it writes the C file:
#     cmake -DSQL_DIR=… -DOUTPUT=… -P HoldfastSql.cmake
set(HOLDFAST_SQL_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")

function(holdfast_embed_sql output)
    file(GLOB_RECURSE inputs CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/schemas/sql/*.sql")
    add_custom_command(
        OUTPUT "${output}"
        COMMAND "${CMAKE_COMMAND}" "-DSQL_DIR=${CMAKE_SOURCE_DIR}/schemas/sql" "-DOUTPUT=${output}"
            -P "${HOLDFAST_SQL_SCRIPT}"
        DEPENDS ${inputs} "${CMAKE_SOURCE_DIR}/schemas/sql/functions/ORDER" "${HOLDFAST_SQL_SCRIPT}"
        COMMENT "Embedding schemas/sql"
        VERBATIM)
    # The plain library and the one with stop points both compile it: one command makes it for both.
    add_custom_target(embedded_sql DEPENDS "${output}")
endfunction()

# Paths relative to SQL_DIR, in order: roles.sql, tables/V*.sql, transitions.sql, functions/ as ORDER says, views/*.sql,
# grants.sql.
function(holdfast_sql_files result)
    file(GLOB tables RELATIVE "${SQL_DIR}" "${SQL_DIR}/tables/V*.sql")
    file(GLOB views RELATIVE "${SQL_DIR}" "${SQL_DIR}/views/*.sql")
    list(SORT tables)
    list(SORT views)
    file(STRINGS "${SQL_DIR}/functions/ORDER" lines ENCODING UTF-8)
    set(functions "")
    foreach(line IN LISTS lines)
        string(REGEX REPLACE "#.*" "" line "${line}")
        string(STRIP "${line}" line)
        if(line)
            list(APPEND functions "functions/${line}")
        endif()
    endforeach()
    set(files roles.sql ${tables} transitions.sql ${functions} ${views} grants.sql)
    foreach(name IN LISTS files)
        if(NOT EXISTS "${SQL_DIR}/${name}")
            message(FATAL_ERROR "schemas/sql/${name} is missing (functions/ORDER names it, or an installation needs it)")
        endif()
    endforeach()
    set(${result} "${files}" PARENT_SCOPE)
endfunction()

function(holdfast_write_sql)
    holdfast_sql_files(files)
    set(arrays "")
    set(rows "")
    set(digests "")
    set(n 0)
    foreach(name IN LISTS files)
        file(READ "${SQL_DIR}/${name}" hex HEX)
        file(SHA256 "${SQL_DIR}/${name}" digest)
        file(SIZE "${SQL_DIR}/${name}" size)
        # 32 bytes a line, so that compilers and editors survive it
        string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
        string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
        string(APPEND arrays "static const unsigned char file_${n}[] = {\n${hex}0};\n")
        string(APPEND rows "    {\"${name}\", (const char *)file_${n}, ${size}, \"${digest}\"},\n")
        string(APPEND digests "${name} ${digest}\n")
        math(EXPR n "${n} + 1")
    endforeach()
    string(SHA256 whole "${digests}")
    set(text "/* Written by cmake/HoldfastSql.cmake from schemas/sql. */\n#include \"schemas/embedded_sql.h\"\n\n")
    string(APPEND text "${arrays}\nconst struct embedded_sql embedded_sql[] = {\n${rows}};\n")
    string(APPEND text "const size_t n_embedded_sql = ${n};\nconst char embedded_sql_digest[] = \"${whole}\";\n")
    file(WRITE "${OUTPUT}" "${text}")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
    holdfast_write_sql()
endif()
