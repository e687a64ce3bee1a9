/* The documents that graphviz/ writes: well-formed and inert whatever the labels hold, the same bytes every time, in
   every locale, thread and child process. */
#define _POSIX_C_SOURCE 200809L

#include "documents.h"
#include "models.h"

#include <cgraph.h>
#include <locale.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a reader of XML, as strict as the documents need ---- */

static bool name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == ':' ||
           c == '_';
}

/* Behind an entity that starts at s, or NULL. */
static const char *entity(const char *s)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;", "&#39;", "&#34;"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(s, known[i], strlen(known[i])) == 0) {
            return s + strlen(known[i]);
        }
    }
    return NULL;
}

/* One character of text or of an attribute's value; NULL for what XML forbids there. */
static const char *character(const char *s)
{
    uint32_t c;
    if (*s == '&') {
        return entity(s);
    }
    size_t n = tgd_utf8_next(s, strlen(s), &c);
    bool replaced = c == 0xFFFD && memcmp(s, "\xEF\xBF\xBD", 3) != 0; /* invalid bytes, not the character itself */
    bool control = c < 0x20 && c != '\n' && c != '\t';
    return *s == '<' || replaced || control || c == 0xFFFE || c == 0xFFFF ? NULL : s + n;
}

/* NULL where the document is well-formed, else where it is not. */
static const char *malformed(const char *s)
{
    enum { DEEPEST = 64 };
    char open[DEEPEST][32];
    size_t depth = 0;
    bool closed = false;
    while (*s != '\0') {
        const char *at = s;
        if (*s != '<') {
            if (depth == 0 && *s != '\n') {
                return at;
            }
            s = character(s);
            if (s == NULL) {
                return at;
            }
            continue;
        }
        bool end = s[1] == '/';
        char name[32];
        size_t n = 0;
        for (s += 1 + end; name_character(*s) && n < sizeof name - 1; s++) {
            name[n++] = *s;
        }
        name[n] = '\0';
        if (n == 0 || (depth == 0 && closed)) {
            return at;
        }
        while (*s == ' ') {
            s++;
            size_t length = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-:0123456789");
            if (length == 0 || s[length] != '=' || s[length + 1] != '"' || strncmp(s, "on", 2) == 0) {
                return at;
            }
            for (s += length + 2; *s != '"';) {
                s = *s == '\0' ? NULL : character(s);
                if (s == NULL) {
                    return at;
                }
            }
            s++;
        }
        bool empty = *s == '/';
        s += empty;
        if (*s++ != '>') {
            return at;
        }
        if (end) {
            if (depth == 0 || strcmp(open[depth - 1], name) != 0) {
                return at;
            }
            closed = --depth == 0;
        } else if (!empty) {
            if (depth == DEEPEST) {
                return at;
            }
            memcpy(open[depth++], name, sizeof name);
        }
    }
    return depth == 0 && closed ? NULL : s;
}

static void check_svg(const char *svg)
{
    const char *bad = malformed(svg);
    if (!CHECK(bad == NULL)) {
        printf("    at: %.80s\n", bad);
    }
    static const char start[] = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1600\" height=\"1000\" "
                                "viewBox=\"0 0 1600 1000\"";
    CHECK(strncmp(svg, start, sizeof start - 1) == 0);
    static const char *const alive[] = {"<script", "href", "<image", "<foreignObject", "url(", "@import", "<a ", "<use",
                                        "<iframe", "<set", "<animate", "var(", "=\"nan", "\"inf", " nan", "-nan"};
    for (size_t i = 0; i < sizeof alive / sizeof *alive; i++) {
        const char *found = strstr(svg, alive[i]);
        while (found != NULL && strncmp(alive[i], "href", 4) == 0 && found[4] != '=') {
            found = strstr(found + 1, alive[i]); /* as text it harms nobody */
        }
        if (!CHECK(found == NULL)) {
            printf("    %s at %.60s\n", alive[i], found);
        }
    }
    CHECK_HAS(svg, "@media (prefers-color-scheme:dark)");
}

/* dot's own parser reads it; returns how many nodes it found. */
static int gv_nodes(const char *gv)
{
    Agraph_t *graph = agmemread(gv);
    if (!CHECK(graph != NULL)) {
        return -1;
    }
    int n = agnnodes(graph);
    agclose(graph);
    return n;
}

static void check_documents(const tgd_report *report)
{
    char *svg = probe_document(report, probe_svg);
    char *again = probe_document(report, probe_svg);
    char *gv = probe_document(report, probe_gv);
    check_svg(svg);
    CHECK(strcmp(svg, again) == 0);
    CHECK(gv_nodes(gv) >= 0);
    free(svg);
    free(again);
    free(gv);
}

/* ---- pictures ---- */

static void pictures_of_models(void)
{
    static model m;
    for (int kind = 0; kind < 5; kind++) {
        if (kind == 0) {
            model_residual(&m, 8, -1);
        } else if (kind == 1) {
            model_residual(&m, 16, 5);
        } else if (kind == 2) {
            model_chain(&m, 1000);
        } else if (kind == 3) {
            model_star(&m, 300);
        } else {
            model_chain(&m, 0);
        }
        tgd_report *report = model_report(&m);
        check_documents(report);
        tgd_report_free(report);
        fake_reset();
    }
}

static void pictures_of_random_graphs(void)
{
    static model m;
    for (uint64_t seed = 1; seed <= (check_quick() ? 3 : 40); seed++) {
        model_random(&m, 3 + seed * 37 % 500, seed, seed % 2 == 1);
        tgd_report *report = model_report(&m);
        check_documents(report);
        tgd_report_free(report);
        fake_reset();
    }
}

static void the_fault_is_named(void)
{
    static model m;
    model_residual(&m, 20, 3);
    tgd_report *report = model_report(&m);
    char *svg = probe_document(report, probe_svg);
    CHECK_HAS(svg, "ReluBackward0");
    CHECK_HAS(svg, "saved result is v0, now v1");
    CHECK_HAS(svg, ">layer.3</text>"); /* its frame */
    CHECK_HAS(svg, "runs, then raises");
    CHECK_HAS(svg, "never reached");
    CHECK_HAS(svg, ">ERROR</tspan>");
    free(svg);
    char *gv = probe_document(report, probe_gv);
    CHECK_HAS(gv, "style=dashed");
    CHECK_HAS(gv, "1: saved result is v0, now v1");
    free(gv);
    tgd_report_free(report);
    fake_reset();
}

static void roots_without_a_graph(void)
{
    tgd_root roots[8];
    for (size_t i = 0; i < 8; i++) {
        roots[i] = (tgd_root){.tensor = fake_tensor(FAKE_SIZES(2, 3))};
    }
    for (size_t n = 1; n <= 8; n += 7) {
        tgd_report *report = probe_roots(roots, n);
        char *svg = probe_document(report, probe_svg);
        check_svg(svg);
        CHECK_HAS(svg, "no grad_fn");
        free(svg);
        check_documents(report);
        tgd_report_free(report);
    }
    fake_reset();
}

static void hostile_labels(void)
{
    static char huge[1000001];
    static const char *const names[] = {"a\"b.w",  "a<b>&c;.w", "line\nbreak\r\t.w",
                                        "</text><script>alert(1)</script>.w",
                                        "]]>.w",   "&#0;&bogus;", "\x01\x02\x1b[31m.w", "\xff\xfe\xc0\xaf.w",
                                        "\xed\xa0\x80.w", "\xef\xbf\xbf.w", "\u65e5\u672c\u8a9e.w", "\U0001F525.w",
                                        "\u202eevil\u2066.w", "\\N\\G\\\".w", "\\", "<b>.x.w", "javascript:x", huge};
    memset(huge, 'z', sizeof huge - 1);
    tgd_parameter parameters[sizeof names / sizeof *names];
    tgd_torch_tensor *x = NULL;
    size_t n = sizeof names / sizeof *names;
    for (size_t i = 0; i < n; i++) {
        tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(2, 2));
        tgd_torch_node *node = fake_python_node(names[i], 0);
        if (x != NULL) {
            fake_edge(node, 0, x->info.grad_fn, 0);
        }
        fake_edge(node, 1, fake_leaf_node(w), 0);
        x = fake_output(node, 0, FAKE_SIZES(2, 2));
        fake_save_result(node, "saved_tensors", x)->index = 0;
        if (i % 3 == 0) {
            fake_bump(x);
        }
        parameters[i] = (tgd_parameter){names[i], i % 4 == 3 ? fake_leaf(FAKE_SIZES(2)) : w};
    }
    fake_python_install();
    for (size_t used = 1; used <= n; used += used < n ? n - 1 : 1) {
        tgd_report *report = probe_parameters(x, parameters, used);
        check_documents(report);
        char *svg = probe_document(report, probe_svg);
        CHECK(strlen(svg) < 200000);
        free(svg);
        tgd_report_free(report);
    }
    fake_reset();
}

/* ---- surroundings ---- */

static void locales_make_no_difference(void)
{
    static model m;
    model_residual(&m, 8, 3);
    tgd_report *report = model_report(&m);
    char *before = probe_document(report, probe_svg);
    if (setlocale(LC_ALL, "de_DE.UTF-8") != NULL) {
        char *after = probe_document(report, probe_svg);
        CHECK(strcmp(before, after) == 0);
        CHECK_STR(localeconv()->decimal_point, ",");
        free(after);
        setlocale(LC_ALL, "C");
    } else {
        printf("    no locale with a decimal comma here: left out\n");
    }
    free(before);
    tgd_report_free(report);
    fake_reset();
}

typedef struct drawing {
    const tgd_report *report;
    const char *expected;
    int times, wrong;
} drawing;

static void *draw(void *argument)
{
    drawing *d = argument;
    for (int i = 0; i < d->times; i++) {
        char *svg = probe_document(d->report, probe_svg);
        d->wrong += strcmp(svg, d->expected) != 0;
        free(svg);
    }
    return NULL;
}

static void threads_and_children_draw(void)
{
    static model m;
    enum { THREADS = 4 };
    model_residual(&m, 6, 2);
    tgd_report *report = model_report(&m);
    char *expected = probe_document(report, probe_svg);
    drawing drawings[THREADS];
    pthread_t threads[THREADS];
    pthread_attr_t small_stack;
    pthread_attr_init(&small_stack);
    pthread_attr_setstacksize(&small_stack, 512 * 1024);
    for (int t = 0; t < THREADS; t++) {
        drawings[t] = (drawing){report, expected, check_quick() ? 3 : 40, 0};
        CHECK_INT(pthread_create(&threads[t], &small_stack, draw, &drawings[t]), 0);
    }
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    /* Not with the sanitizers, whose allocators may be locked in the child, and not under valgrind, to which the memory
       of the parent's threads is lost there. */
    for (int child = 0; child < (check_quick() ? 0 : 8); child++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(60); /* a lock that nobody gives back would wait for ever */
            drawing d = {report, expected, 1, 0};
            draw(&d);
            _exit(d.wrong);
        }
        int status = -1;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
#endif
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        CHECK_INT(drawings[t].wrong, 0);
    }
    pthread_attr_destroy(&small_stack);
    free(expected);
    tgd_report_free(report);
    fake_reset();
}

static void nothing_on_stderr(void)
{
    static model m;
    char name[] = "/tmp/tgd-stderr-XXXXXX";
    const char *folder = getenv("TGD_TEST_OUT");
    char path[1024];
    snprintf(path, sizeof path, "%s", folder != NULL ? folder : "/tmp");
    strncat(path, strrchr(name, '/'), sizeof path - strlen(path) - 1);
    int file = mkstemp(path);
    int saved = dup(2);
    fflush(stderr);
    CHECK(file >= 0 && saved >= 0 && dup2(file, 2) == 2);
    model_random(&m, 300, 5, true);
    tgd_report *report = model_report(&m);
    char *svg = probe_document(report, probe_svg);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    struct stat info;
    CHECK(fstat(file, &info) == 0);
    CHECK_INT(info.st_size, 0);
    close(file);
    unlink(path);
    free(svg);
    tgd_report_free(report);
    fake_reset();
}

static int refuse(void *context, const char *bytes, size_t n)
{
    (void)bytes;
    (void)n;
    return *(int *)context;
}

static void a_sink_that_refuses(void)
{
    static model m;
    model_residual(&m, 3, -1);
    tgd_report *report = model_report(&m);
    for (tgd_format format = TGD_FORMAT_TEXT; format <= TGD_FORMAT_HTML; format++) {
        if (format == TGD_FORMAT_TRACE) { /* nothing was timed */
            continue;
        }
        tgd_error err = {0};
        int why = 28;
        CHECK_INT(tgd_report_write(report, format, refuse, &why, &err), TGD_EIO);
        CHECK_INT(err.os_errno, 28);
        CHECK_INT(tgd_report_write(report, format, refuse, &why, NULL), TGD_EIO);
    }
    tgd_error err = {0};
    CHECK_INT(tgd_report_write(report, (tgd_format)17, refuse, NULL, &err), TGD_EINVAL);
    tgd_report_free(report);
    fake_reset();
}

CHECK_MAIN(TEST(pictures_of_models), TEST(pictures_of_random_graphs), TEST(the_fault_is_named),
           TEST(roots_without_a_graph), TEST(hostile_labels), TEST(locales_make_no_difference),
           TEST(threads_and_children_draw), TEST(nothing_on_stderr), TEST(a_sink_that_refuses))
