/*
 * The test harness: a list of functions, run in order, with the failures of each printed as file:line. Our own
 * because the allocation sweep wraps malloc for the whole program, where a library's own allocations would be
 * counted, and because a failed check goes on to the next (more is learnt from one run).
 *
 * A test file ends with CHECK_MAIN(test_a, test_b, ...). An argument runs only the tests whose names contain it.
 * The last line of output is "<passed> passed, <failed> failed"; the exit status says whether any failed.
 */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct check_test {
    const char *name;
    void (*run)(void);
} check_test;

enum { CHECK_SHOWN = 10 }; /* failures printed of one test */
static size_t check_failures, check_failures_before;

static inline bool check_shown(void)
{
    return check_failures - check_failures_before < CHECK_SHOWN;
}

static inline bool check_report(bool ok, const char *file, int line, const char *text)
{
    if (!ok) {
        if (check_shown()) {
            printf("%s:%d: failed: %s\n", file, line, text);
        }
        check_failures++;
    }
    return ok;
}

/* Each is an expression: true where the check holds. */
#define CHECK(condition) check_report((condition), __FILE__, __LINE__, #condition)
#define CHECK_INT(actual, expected)                                                                                    \
    check_int((long long)(actual), (long long)(expected), __FILE__, __LINE__, #actual)
#define CHECK_STR(actual, expected) check_str((actual), (expected), __FILE__, __LINE__, #actual)
#define CHECK_HAS(text, part) check_has((text), (part), true, __FILE__, __LINE__, #text)
#define CHECK_LACKS(text, part) check_has((text), (part), false, __FILE__, __LINE__, #text)

static inline bool check_int(long long actual, long long expected, const char *file, int line, const char *what)
{
    if (actual == expected) {
        return true;
    }
    if (check_shown()) {
        printf("    %s is %lld, expected %lld\n", what, actual, expected);
    }
    return check_report(false, file, line, what);
}

static inline bool check_str(const char *actual, const char *expected, const char *file, int line, const char *what)
{
    if (actual != NULL && expected != NULL ? strcmp(actual, expected) == 0 : actual == expected) {
        return true;
    }
    if (check_shown()) {
        printf("    %s is \"%s\",\n    expected \"%s\"\n", what, actual != NULL ? actual : "(null)",
               expected != NULL ? expected : "(null)");
    }
    return check_report(false, file, line, what);
}

static inline bool check_has(const char *text, const char *part, bool wanted, const char *file, int line,
                             const char *what)
{
    if (text != NULL && (strstr(text, part) != NULL) == wanted) {
        return true;
    }
    if (check_shown()) {
        printf("    %s %s \"%s\":\n%s\n", what, wanted ? "lacks" : "has", part, text != NULL ? text : "(null)");
    }
    return check_report(false, file, line, what);
}

/* Set by run.sh where everything is slow (valgrind): the big cases are made smaller. */
static inline bool check_quick(void)
{
    return getenv("TGD_TEST_QUICK") != NULL;
}

static inline int check_run(const check_test *tests, size_t n, const char *only)
{
    size_t passed = 0, failed = 0;
    for (size_t i = 0; i < n; i++) {
        if (only != NULL && strstr(tests[i].name, only) == NULL) {
            continue;
        }
        check_failures_before = check_failures;
        tests[i].run();
        if (check_failures == check_failures_before) {
            passed++;
        } else {
            failed++;
            printf("FAILED %s (%zu checks)\n", tests[i].name, check_failures - check_failures_before);
        }
        fflush(stdout);
    }
    printf("%zu passed, %zu failed\n", passed, failed);
    return failed != 0;
}

#define CHECK_MAIN(...)                                                                                                \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        static const check_test tests[] = {__VA_ARGS__};                                                               \
        return check_run(tests, sizeof tests / sizeof tests[0], argc > 1 ? argv[1] : NULL);                            \
    }
#define TEST(function) {#function, function}

#endif
