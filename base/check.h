/* Compiler attributes and the assert that stays on in release.
 *
 * MUST_CHECK   the result of the function may not be ignored.
 * CHECK(expr)  a rule of this program's own code; false ends the process with file and line
 *              (SIGABRT). Never for input, network or database answers: those are outcomes.
 * NOT_REACHED("what")  behind a switch that has all cases.
 * CLEANUP(fn)  run fn(&variable) when the variable leaves its scope. */
#ifndef HOLDFAST_BASE_CHECK_H
#define HOLDFAST_BASE_CHECK_H

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define UNUSED __attribute__((unused))

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define NOT_REACHED(what) check_failed("reached: " what, __FILE__, __LINE__)
#define CHECK(expr) ((expr) ? (void)0 : check_failed(#expr, __FILE__, __LINE__))

/* Thread: any. */
__attribute__((noreturn)) void check_failed(const char *expr, const char *file, int line);

#endif
