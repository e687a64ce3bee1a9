/*
 * What a watch knows beside the graph: numbers that are not finite, and what became of the backward. The facts are
 * found elsewhere (ext/python/watch_*.c); here they become findings and words.
 */
#ifndef TGD_VALUES_H
#define TGD_VALUES_H

#include "text.h"
#include "torchgraphdbg/tgd.h"
#include <stdbool.h>

typedef enum tgd_value_of {
    TGD_VALUE_ROOT,     /* a root of backward */
    TGD_VALUE_GRADIENT, /* the .grad of a parameter */
    TGD_VALUE_OUTPUT    /* what a module's forward returned */
} tgd_value_of;

typedef struct tgd_value {
    tgd_value_of of;
    uint32_t root;                     /* TGD_VALUE_ROOT: its place in the request */
    uint64_t tensor;                   /* TGD_VALUE_GRADIENT: address of the parameter */
    const char *module, *module_class; /* TGD_VALUE_OUTPUT: path (NULL: unknown, "": the outermost) and class */
    int64_t numel;
    int64_t n_nan, n_inf; /* with counted */
    bool counted;         /* else it is only known that some element is NaN (n_nan 1) or infinite (n_inf 1) */
} tgd_value;

typedef enum tgd_ran {
    TGD_NOT_YET = 0, /* the snapshot is from before backward */
    TGD_RAN,         /* from after it: what it released is no fault */
    TGD_RAISED       /* the same, and it broke off */
} tgd_ran;

typedef struct tgd_values {
    const tgd_value *rows;
    size_t n;
    tgd_ran ran;
    const char *raised;   /* "RuntimeError: ...", what backward raised; NULL: nothing, or not yet */
    const char *occasion; /* "step 12", for the text report; or NULL */
} tgd_values;

/* In a report. */
typedef struct tgd_value_row {
    char *module, *module_class; /* Owned; or NULL */
    int64_t numel, n_nan, n_inf;
    bool counted;
} tgd_value_row;

struct tgd_report;

/* The parts of tgd_report_capture that take them up. */
tgd_status tgd_values_keep(struct tgd_report *report, const tgd_values *values, tgd_error *err);
tgd_status tgd_judge_values(struct tgd_report *report, const tgd_values *values, tgd_error *err);
void tgd_values_clear(struct tgd_report *report);
/* After the other judges: a finding that was only a "may" and is what backward raised becomes an error. */
void tgd_judge_raised(struct tgd_report *report);

/* The finding that explains what backward raised, or SIZE_MAX: none does, or nothing was raised. */
size_t tgd_report_explains(const struct tgd_report *report);
/* Was it made (or judged again) after backward raised? */
bool tgd_report_knows_raised(const struct tgd_report *report);

/* Words of a finding about values; `row` is its place in the report's findings. */
bool tgd_finding_is_value(const struct tgd_report *report, size_t finding);
void tgd_value_message(tgd_text *text, const struct tgd_report *report, size_t finding);
void tgd_value_verdict(tgd_text *text, const struct tgd_report *report, size_t finding);
const char *tgd_value_hint(const struct tgd_report *report, size_t finding);

#endif
