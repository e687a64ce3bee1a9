/* What the tests of the core share: capture in one line, findings by kind, documents as strings. */
#ifndef PROBE_H
#define PROBE_H

#include "check.h"
#include "fake_torch.h"
#include "report.h"

static inline size_t probe_roots_given(const tgd_report *report)
{
    tgd_summary summary;
    tgd_report_summary(report, &summary);
    return summary.n_roots;
}

/* What holds of every report, whatever it is about. */
static inline void probe_invariants(const tgd_report *report)
{
    size_t n_nodes = tgd_report_n_nodes(report), n_bad = 0;
    tgd_finding_info before = {.severity = TGD_ERROR};
    const char *verdict = tgd_report_verdict(report);
    CHECK(verdict != NULL && verdict[0] != '\0' && strchr(verdict, '\n') == NULL);
    for (size_t i = 0; i < tgd_report_n_findings(report); i++) {
        tgd_finding_info here;
        tgd_report_finding(report, i, &here);
        CHECK(here.severity >= before.severity); /* errors, warnings, notes */
        n_bad += here.severity != TGD_NOTE;
        CHECK(here.node == TGD_NONE || here.node < n_nodes);
        for (size_t k = 0; k < i; k++) {
            tgd_finding_info other;
            tgd_report_finding(report, k, &other);
            CHECK(other.group != here.group || other.kind == here.kind); /* a group has one cause */
        }
        CHECK(here.root == SIZE_MAX || here.root < probe_roots_given(report));
        if (here.node != TGD_NONE && here.saved != SIZE_MAX) {
            tgd_node_info node;
            tgd_report_node(report, here.node, &node);
            CHECK(here.saved < node.n_saved);
        }
        for (int hint = 0; hint < 2; hint++) {
            char text[4096] = "";
            size_t needed = hint ? tgd_report_finding_hint(report, i, text, sizeof text)
                                 : tgd_report_finding_message(report, i, text, sizeof text);
            CHECK(needed < sizeof text && strlen(text) == needed);
            CHECK(hint || needed > 0);
            CHECK(strchr(text, '\n') == NULL && strstr(text, "(null)") == NULL);
        }
        before = here;
    }
    CHECK_INT(tgd_report_ok(report), n_bad == 0);
}

static inline tgd_report *probe_request(const tgd_request *request)
{
    tgd_report *report = NULL;
    tgd_error err = {0};
    tgd_status status = tgd_report_capture(&report, request, &err);
    if (status != TGD_OK || report == NULL) {
        printf("capture failed: %d %s\n", status, err.message);
        abort();
    }
    CHECK_INT(fake_gil_depth(), 0);
    probe_invariants(report);
    return report;
}

static inline tgd_report *probe_roots(const tgd_root *roots, size_t n)
{
    return probe_request(&(tgd_request){.roots = roots, .n_roots = n});
}

static inline tgd_report *probe(const tgd_torch_tensor *root)
{
    return probe_roots(&(tgd_root){.tensor = root}, 1);
}

static inline tgd_report *probe_parameters(const tgd_torch_tensor *root, const tgd_parameter *parameters, size_t n)
{
    return probe_request(&(tgd_request){
        .roots = &(tgd_root){.tensor = root}, .n_roots = 1, .parameters = parameters, .n_parameters = n});
}

static inline tgd_summary probe_summary(const tgd_report *report)
{
    tgd_summary summary;
    tgd_report_summary(report, &summary);
    return summary;
}

static inline tgd_node_info probe_node(const tgd_report *report, tgd_node v)
{
    tgd_node_info info;
    tgd_report_node(report, v, &info);
    return info;
}

static inline tgd_saved_info probe_saved(const tgd_report *report, tgd_node v, size_t k)
{
    tgd_saved_info info;
    tgd_report_saved(report, v, k, &info);
    return info;
}

/* The row of a fake node, TGD_NONE if it was not captured. */
static inline tgd_node probe_row(const tgd_report *report, const tgd_torch_node *node)
{
    for (size_t v = 0; v < tgd_report_n_nodes(report); v++) {
        if (probe_node(report, (tgd_node)v).address == (uint64_t)(uintptr_t)node) {
            return (tgd_node)v;
        }
    }
    return TGD_NONE;
}

/* The nth finding of a kind, and its place in the list; kind TGD_N_FINDING_KINDS if there is none. */
static inline tgd_finding_info probe_finding(const tgd_report *report, tgd_finding_kind kind, size_t nth, size_t *at)
{
    tgd_finding_info info = {.kind = TGD_N_FINDING_KINDS};
    size_t ignored;
    at = at != NULL ? at : &ignored;
    *at = SIZE_MAX;
    for (size_t i = 0; i < tgd_report_n_findings(report); i++) {
        tgd_finding_info here;
        tgd_report_finding(report, i, &here);
        if (here.kind == kind && nth-- == 0) {
            *at = i;
            return here;
        }
    }
    return info;
}

static inline size_t probe_count(const tgd_report *report, tgd_finding_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < tgd_report_n_findings(report); i++) {
        tgd_finding_info here;
        tgd_report_finding(report, i, &here);
        n += here.kind == kind;
    }
    return n;
}

static inline size_t probe_count_severity(const tgd_report *report, tgd_severity severity)
{
    size_t n = 0;
    for (size_t i = 0; i < tgd_report_n_findings(report); i++) {
        tgd_finding_info here;
        tgd_report_finding(report, i, &here);
        n += here.severity == severity;
    }
    return n;
}

/* In static buffers, good until the next call; "" for SIZE_MAX. */
static inline const char *probe_message(const tgd_report *report, size_t i)
{
    static char buffer[8192];
    buffer[0] = '\0';
    if (i != SIZE_MAX) {
        tgd_report_finding_message(report, i, buffer, sizeof buffer);
    }
    return buffer;
}

static inline const char *probe_hint(const tgd_report *report, size_t i)
{
    static char buffer[8192];
    buffer[0] = '\0';
    if (i != SIZE_MAX) {
        tgd_report_finding_hint(report, i, buffer, sizeof buffer);
    }
    return buffer;
}

static inline void probe_print(const tgd_report *report)
{
    printf("  verdict: %s\n", tgd_report_verdict(report));
    for (size_t i = 0; i < tgd_report_n_findings(report); i++) {
        tgd_finding_info here;
        tgd_report_finding(report, i, &here);
        printf("  %s %s (group %zu): %s\n", tgd_severity_slug(here.severity), tgd_finding_slug(here.kind), here.group,
               probe_message(report, i));
        printf("      hint: %s\n", probe_hint(report, i));
    }
}

typedef tgd_status (*probe_writer)(const tgd_report *report, tgd_sink sink, void *context, tgd_error *err);

static inline tgd_status probe_svg(const tgd_report *report, tgd_sink sink, void *context, tgd_error *err)
{
    return tgd_report_write(report, TGD_FORMAT_SVG, sink, context, err);
}

static inline tgd_status probe_html(const tgd_report *report, tgd_sink sink, void *context, tgd_error *err)
{
    return tgd_report_write(report, TGD_FORMAT_HTML, sink, context, err);
}

static inline tgd_status probe_gv(const tgd_report *report, tgd_sink sink, void *context, tgd_error *err)
{
    return tgd_report_write(report, TGD_FORMAT_GV, sink, context, err);
}

typedef struct probe_string {
    char *bytes;
    size_t n, capacity;
} probe_string;

static inline int probe_keep(void *context, const char *bytes, size_t n)
{
    probe_string *to = context;
    if (to->n + n + 1 > to->capacity) {
        to->capacity = (to->n + n + 1) * 2;
        to->bytes = realloc(to->bytes, to->capacity);
        if (to->bytes == NULL) {
            abort();
        }
    }
    memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
    to->bytes[to->n] = '\0';
    return 0;
}

static inline int probe_count_bytes(void *context, const char *bytes, size_t n)
{
    (void)bytes;
    *(size_t *)context += n;
    return 0;
}

/* The document; the caller frees. */
static inline char *probe_document(const tgd_report *report, probe_writer write)
{
    probe_string out = {0};
    tgd_error err = {0};
    if (write(report, probe_keep, &out, &err) != TGD_OK || out.bytes == NULL) {
        printf("writing failed: %s\n", err.message);
        abort();
    }
    return out.bytes;
}

#endif
