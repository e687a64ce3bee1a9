/* text.c and error.c: escapes, UTF-8, numbers in words, the sink. */
#include "check.h"
#include "text.h"

#include <errno.h>
#include <locale.h>

/* ---- helpers ---- */

/* What `append` wrote, NUL-terminated; the caller frees. */
typedef void (*append)(tgd_text *text, const void *argument);

static char *written(append body, const void *argument)
{
    tgd_text text;
    tgd_text_init(&text, NULL, NULL);
    body(&text, argument);
    tgd_text_bytes(&text, "", 1);
    if (text.bytes == NULL) {
        abort();
    }
    char *copy = malloc(text.n);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, text.bytes, text.n);
    CHECK_INT(tgd_text_finish(&text, NULL), TGD_OK);
    return copy;
}

static void is(append body, const void *argument, const char *expected, int line)
{
    char *actual = written(body, argument);
    check_str(actual, expected, __FILE__, line, "text");
    free(actual);
}

static void json(tgd_text *text, const void *s)
{
    tgd_text_json(text, s);
}

static void xml(tgd_text *text, const void *s)
{
    tgd_text_xml(text, s);
}

typedef struct line_case {
    const char *s;
    size_t most;
} line_case;

static void line(tgd_text *text, const void *argument)
{
    const line_case *c = argument;
    tgd_text_line(text, c->s, c->most);
}

typedef struct fixed_case {
    double value;
    int decimals;
} fixed_case;

static void fixed(tgd_text *text, const void *argument)
{
    const fixed_case *c = argument;
    tgd_text_fixed(text, c->value, c->decimals);
}

static void size(tgd_text *text, const void *argument)
{
    tgd_text_size(text, *(const uint64_t *)argument);
}

static void count(tgd_text *text, const void *argument)
{
    tgd_text_count(text, *(const uint64_t *)argument);
}

#define IS_JSON(s, expected) is(json, (s), (expected), __LINE__)
#define IS_XML(s, expected) is(xml, (s), (expected), __LINE__)
#define IS_LINE(s, most, expected) is(line, &(line_case){(s), (most)}, (expected), __LINE__)
#define IS_FIXED(value, decimals, expected) is(fixed, &(fixed_case){(value), (decimals)}, (expected), __LINE__)
#define IS_SIZE(n, expected) is(size, &(uint64_t){(n)}, (expected), __LINE__)
#define IS_COUNT(n, expected) is(count, &(uint64_t){(n)}, (expected), __LINE__)

#define FFFD "\xEF\xBF\xBD"

/* ---- UTF-8 ---- */

/* The Unicode standard's table of well-formed byte sequences (table 3-7), row by row. Returns the length of the
   character at s, or 0 where the bytes are not well-formed. */
static size_t well_formed(const unsigned char *s, size_t n, uint32_t *out)
{
    static const struct {
        unsigned char first_low, first_high, second_low, second_high, length;
    } rows[] = {
        {0x00, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
        {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
        {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    static const unsigned char payload[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        if (s[0] < rows[r].first_low || s[0] > rows[r].first_high) {
            continue;
        }
        size_t length = rows[r].length;
        if (length > n || (length > 1 && (s[1] < rows[r].second_low || s[1] > rows[r].second_high))) {
            return 0;
        }
        uint32_t c = s[0] & payload[length];
        for (size_t i = 1; i < length; i++) {
            if (s[i] < 0x80 || s[i] > 0xBF) {
                return 0;
            }
            c = c << 6 | (s[i] & 0x3Fu);
        }
        *out = c;
        return length;
    }
    return 0;
}

/* One decoder step against the table: the same character, or U+FFFD and no well-formed character swallowed. */
static bool agrees(const unsigned char *bytes, size_t n)
{
    uint32_t expected = 0, actual = 0;
    size_t length = well_formed(bytes, n, &expected);
    size_t took = tgd_utf8_next((const char *)bytes, n, &actual);
    if (length != 0) {
        return took == length && actual == expected;
    }
    if (actual != 0xFFFD || took < 1 || took > n) {
        return false;
    }
    for (size_t i = 1; i < took; i++) {
        if (well_formed(bytes + i, n - i, &expected) != 0) {
            return false;
        }
    }
    return true;
}

static void utf8_every_character(void)
{
    uint32_t wrong = 0;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (c >= 0xD800 && c <= 0xDFFF) {
            continue;
        }
        char buffer[4];
        uint32_t back = 0;
        size_t n = tgd_utf8_put(c, buffer);
        if (n != (c < 0x80 ? 1u : c < 0x800 ? 2u : c < 0x10000 ? 3u : 4u) || tgd_utf8_next(buffer, n, &back) != n ||
            back != c) {
            wrong++;
        }
    }
    CHECK_INT(wrong, 0);
}

static void utf8_every_beginning(void)
{
    /* Every pair of first bytes, every third byte that could matter, and every way of being cut off. */
    static const unsigned char thirds[] = {0x41, 0x7F, 0x80, 0x8F, 0x9F, 0xA0, 0xBF, 0xC2};
    uint32_t wrong = 0;
    for (unsigned a = 0; a < 256; a++) {
        for (unsigned b = 0; b < 256; b++) {
            for (size_t c = 0; c < sizeof thirds; c++) {
                for (size_t d = 0; d < sizeof thirds; d++) {
                    unsigned char bytes[4] = {(unsigned char)a, (unsigned char)b, thirds[c], thirds[d]};
                    for (size_t n = 1; n <= 4; n++) {
                        wrong += !agrees(bytes, n);
                    }
                }
            }
        }
    }
    CHECK_INT(wrong, 0);
}

/* ---- escapes ---- */

static void json_escapes(void)
{
    IS_JSON("", "\"\"");
    IS_JSON("plain", "\"plain\"");
    IS_JSON("a\"b\\c/", "\"a\\\"b\\\\c/\"");
    IS_JSON("\n\t\r\b\f\x01\x1f\x7f", "\"\\n\\t\\u000d\\u0008\\u000c\\u0001\\u001f\\u007f\"");
    IS_JSON("</script>&'", "\"</script>&'\"");
    IS_JSON("gr\xC3\xBC\xC3\x9F \xE6\xBC\xA2 \xF0\x9F\x98\x80", "\"gr\xC3\xBC\xC3\x9F \xE6\xBC\xA2 \xF0\x9F\x98\x80\"");
    IS_JSON("\xE2\x80\xA8\xE2\x80\xA9", "\"\\u2028\\u2029\"");
    IS_JSON("a\xFF"
            "b",
            "\"a" FFFD "b\"");
    IS_JSON("cut \xE2\x82", "\"cut " FFFD "\"");
    IS_JSON("\xED\xA0\x80", "\"" FFFD "\""); /* a surrogate */
    IS_JSON("\xC0\x80", "\"" FFFD FFFD "\"");
}

static void xml_escapes(void)
{
    IS_XML("", "");
    IS_XML("a<b>&\"c'", "a&lt;b&gt;&amp;&quot;c&#39;");
    IS_XML("]]>", "]]&gt;");
    IS_XML("tab\tline\n", "tab\tline\n");
    IS_XML("\x01\x08\x0b\x0c\x1f\x7f", FFFD FFFD FFFD FFFD FFFD FFFD);
    IS_XML("\xEF\xBF\xBE\xEF\xBF\xBF", FFFD FFFD); /* U+FFFE and U+FFFF */
    IS_XML("\xC2\x85", FFFD);
    IS_XML("\xF0\x9F\x98\x80 \xE6\xBC\xA2", "\xF0\x9F\x98\x80 \xE6\xBC\xA2");
    IS_XML("x\x80y", "x" FFFD "y");
    IS_XML("\xF4\x90\x80\x80", FFFD); /* past U+10FFFF */
}

static void xml_has_no_raw_markup_whatever_goes_in(void)
{
    for (unsigned b = 1; b < 256; b++) {
        char s[4] = {'a', (char)b, 'b', '\0'};
        char *out = written(xml, s);
        for (const char *p = out; *p != '\0'; p++) {
            CHECK(*p != '<' && *p != '>' && *p != '"' && *p != '\'');
            CHECK((unsigned char)*p >= 0x20 || *p == '\t' || *p == '\n');
        }
        free(out);
    }
}

static void one_line(void)
{
    IS_LINE("", 0, "");
    IS_LINE("two\nlines\r\tx", 0, "two lines  x");
    IS_LINE("\x1b[31mred", 0, FFFD "[31mred");
    IS_LINE("\x7f\xC2\x9B", 0, FFFD FFFD);
    IS_LINE("\xE2\x80\xA8\xC2\x85", 0, "  ");
    IS_LINE("\xE2\x80\xAE", 0, FFFD); /* right-to-left override */
    IS_LINE("a\xFFz", 0, "a" FFFD "z");
    IS_LINE("<&\"", 0, "<&\"");
}

static void the_middle_gives_way(void)
{
    IS_LINE("abcdefghij", 10, "abcdefghij");
    IS_LINE("abcdefghijk", 10, "abcd...ijk");
    IS_LINE("abcdefghijk", 9, "abc...ijk");
    IS_LINE("abcdefghijk", 4, "a...");
    IS_LINE("abcdefghijk", 3, "...");
    /* Characters are counted, not bytes. */
    IS_LINE("\xC3\xA4\xC3\xB6\xC3\xBC\xC3\x9F", 4, "\xC3\xA4\xC3\xB6\xC3\xBC\xC3\x9F");
    IS_LINE("\xF0\x9F\x98\x80\xF0\x9F\x98\x81\xF0\x9F\x98\x82\xF0\x9F\x98\x83\xF0\x9F\x98\x84\xF0\x9F\x98\x85", 5,
            "\xF0\x9F\x98\x80...\xF0\x9F\x98\x85");
}

static size_t characters(const char *s)
{
    size_t n = 0;
    for (; *s != '\0'; s++) {
        n += ((unsigned char)*s & 0xC0) != 0x80;
    }
    return n;
}

static void the_limit_holds_whatever_goes_in(void)
{
    /* Bytes that continue nothing, cut characters, mixes: never more characters than asked for. */
    static const char *const units[] = {"\x80",          "\xC3",             "\xE2\x82", "\xC3\xA4\x80",
                                        "a\x80\x80\x80", "\xF0\x9F\x98\x80", "a"};
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        char s[4096] = "";
        size_t length = strlen(units[u]);
        for (size_t at = 0; at + length < sizeof s; at += length) {
            memcpy(s + at, units[u], length);
            s[at + length] = '\0';
        }
        for (size_t most = 1; most < 60; most++) {
            char *out = written(line, &(line_case){s, most});
            CHECK(characters(out) <= most);
            if (most >= 3) {
                CHECK(strstr(out, "...") != NULL);
                CHECK_INT(characters(out), most);
            }
            free(out);
        }
    }
}

/* ---- numbers ---- */

static void numbers(void)
{
    IS_FIXED(0, 0, "0");
    IS_FIXED(1.5, 1, "1.5");
    IS_FIXED(-1.5, 1, "-1.5");
    IS_FIXED(2.0, 3, "2.000");
    IS_FIXED(0.05, 1, "0.1");
    IS_FIXED(-0.04, 1, "0.0");
    IS_FIXED(0.999, 2, "1.00");
    IS_FIXED(123456.789, 3, "123456.789");
    IS_FIXED(1.0 / 3, 6, "0.333333");
    IS_FIXED((double)(float)1e30, 2, "inf");
    IS_FIXED(-(double)(float)1e30, 2, "-inf");
    IS_COUNT(0, "0");
    IS_COUNT(999, "999");
    IS_COUNT(1000, "1,000");
    IS_COUNT(12345, "12,345");
    IS_COUNT(1000000, "1,000,000");
    IS_COUNT(UINT64_MAX, "18,446,744,073,709,551,615");
    IS_SIZE(0, "0 bytes");
    IS_SIZE(1, "1 byte");
    IS_SIZE(312, "312 bytes");
    IS_SIZE(999, "999 bytes");
    IS_SIZE(1000, "1.00 kB");
    IS_SIZE(1500000, "1.50 MB");
    IS_SIZE(9994, "9.99 kB");
    IS_SIZE(9996, "10.0 kB");
    IS_SIZE(99949, "99.9 kB");
    IS_SIZE(99960, "100 kB");
    IS_SIZE(999499, "999 kB");
    IS_SIZE(999500, "1.00 MB");
    IS_SIZE(4000000000u, "4.00 GB");
    IS_SIZE(UINT64_MAX, "18.4 EB");
}

static void numbers_ignore_the_locale(void)
{
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL) {
        printf("no locale with a decimal comma here: not checked\n");
        return;
    }
    char control[16];
    snprintf(control, sizeof control, "%.1f", 1.5);
    CHECK_STR(control, "1,5");
    IS_FIXED(1.5, 1, "1.5");
    IS_COUNT(12345, "12,345");
    IS_SIZE(1500000, "1.50 MB");
    setlocale(LC_ALL, "C");
}

/* ---- the sink ---- */

typedef struct basket {
    char bytes[400000];
    size_t n, calls, refuse_at;
    int refuse_with;
} basket;

static basket kept;

static int keep(void *context, const char *bytes, size_t n)
{
    basket *to = context;
    if (to->calls++ == to->refuse_at) {
        return to->refuse_with;
    }
    if (to->n + n > sizeof to->bytes) {
        abort();
    }
    memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
    return 0;
}

static void the_sink_gets_every_byte(void)
{
    kept = (basket){.refuse_at = SIZE_MAX};
    tgd_text text;
    tgd_text_init(&text, keep, &kept);
    for (int i = 0; i < 30000; i++) {
        tgd_text_printf(&text, "%06d\n", i);
    }
    CHECK_INT(tgd_text_finish(&text, NULL), TGD_OK);
    CHECK_INT(kept.n, 30000 * 7);
    CHECK(kept.calls > 1 && kept.calls < 100); /* in pieces, and not in crumbs */
    for (int i = 0; i < 30000; i++) {
        char expected[16];
        snprintf(expected, sizeof expected, "%06d\n", i);
        if (memcmp(kept.bytes + i * 7, expected, 7) != 0) {
            CHECK_INT(i, -1);
            break;
        }
    }
}

static void a_sink_that_refuses_ends_the_writing(void)
{
    for (size_t at = 0; at < 3; at++) {
        kept = (basket){.refuse_at = at, .refuse_with = ENOSPC};
        tgd_text text;
        tgd_text_init(&text, keep, &kept);
        for (int i = 0; i < 60000; i++) {
            tgd_text_str(&text, "0123456");
        }
        tgd_error err = {0};
        CHECK_INT(tgd_text_finish(&text, &err), TGD_EIO);
        CHECK_INT(err.status, TGD_EIO);
        CHECK_INT(err.os_errno, ENOSPC);
        CHECK_HAS(err.message, strerror(ENOSPC));
        CHECK_INT(kept.calls, at + 1); /* asked no more after it said no */
    }
}

static void an_empty_text_is_no_failure(void)
{
    kept = (basket){.refuse_at = 0, .refuse_with = EIO};
    tgd_text text;
    tgd_text_init(&text, keep, &kept);
    CHECK_INT(tgd_text_finish(&text, NULL), TGD_OK);
    CHECK_INT(kept.calls, 0);
    tgd_text_init(&text, NULL, NULL);
    tgd_text_str(&text, "dropped");
    tgd_text_drop(&text);
    tgd_text_drop(&text);
}

static void large_pieces(void)
{
    tgd_text text;
    tgd_text_init(&text, NULL, NULL);
    static char piece[100000];
    memset(piece, 'x', sizeof piece);
    tgd_text_bytes(&text, piece, sizeof piece);
    tgd_text_printf(&text, "%s", "");
    tgd_text_printf(&text, "%.*s", 70000, piece);
    CHECK_INT(text.n, 170000);
    CHECK_INT(tgd_text_finish(&text, NULL), TGD_OK);
}

/* ---- errors ---- */

static void errors(void)
{
    tgd_error err;
    memset(&err, 0x55, sizeof err);
    CHECK_INT(tgd_fail(&err, TGD_EINVAL, "node %u of %zu", 7u, (size_t)3), TGD_EINVAL);
    CHECK_INT(err.status, TGD_EINVAL);
    CHECK_INT(err.os_errno, 0);
    CHECK_STR(err.message, "node 7 of 3");
    CHECK_INT(tgd_fail(NULL, TGD_ETORCH, "unseen"), TGD_ETORCH);
    CHECK_INT(tgd_fail_io(&err, ENOENT, "cannot open %s", "x.svg"), TGD_EIO);
    CHECK_INT(err.os_errno, ENOENT);
    CHECK_STR(err.message, "cannot open x.svg: No such file or directory");
    CHECK_INT(tgd_fail_memory(&err), TGD_ENOMEM);
    CHECK_STR(err.message, "out of memory");

    static char path[2000];
    memset(path, 'p', sizeof path - 1);
    CHECK_INT(tgd_fail_io(&err, ENOENT, "cannot open %s", path), TGD_EIO);
    CHECK_INT(strlen(err.message), sizeof err.message - 1);
}

CHECK_MAIN(TEST(utf8_every_character), TEST(utf8_every_beginning), TEST(json_escapes), TEST(xml_escapes),
           TEST(xml_has_no_raw_markup_whatever_goes_in), TEST(one_line), TEST(the_middle_gives_way),
           TEST(the_limit_holds_whatever_goes_in), TEST(numbers), TEST(numbers_ignore_the_locale),
           TEST(the_sink_gets_every_byte), TEST(a_sink_that_refuses_ends_the_writing),
           TEST(an_empty_text_is_no_failure), TEST(large_pieces), TEST(errors))
