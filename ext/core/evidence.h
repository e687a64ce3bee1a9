/* A record, put in order for questions about one snapshot. */
#ifndef TGD_EVIDENCE_H
#define TGD_EVIDENCE_H

#include "judge.h"

/* Sorted by a, b, c. */
typedef struct tgd_sorted {
    uint64_t a, b, c;
    uint32_t row;
} tgd_sorted;

typedef struct tgd_evidence {
    tgd_report *report;       /* Borrowed */
    const tgd_record *record; /* Borrowed */
    tgd_error *err;
    tgd_sorted *ops;          /* Owned: thread, sequence_nr, time */
    tgd_sorted *by_counter;   /* Owned: writes by version counter, version, time */
    tgd_sorted *by_storage;   /* Owned: writes by storage, time */
    tgd_sorted *taken;        /* Owned: thread, sequence_nr, run */
    tgd_address_map rooms;    /* stack and module of a place -> a number, counted by n_rooms */
    tgd_address_map places;   /* that number and the line in it -> source */
    uint32_t n_rooms;
} tgd_evidence;

/* Release with tgd_evidence_close() in any case. */
tgd_status tgd_evidence_open(tgd_evidence *evidence, tgd_report *report, tgd_error *err);
void tgd_evidence_close(tgd_evidence *evidence);
/* The same over another record than the report's own: one that reaches further. */
tgd_status tgd_evidence_open_record(tgd_evidence *evidence, tgd_report *report, const tgd_record *record,
                                    tgd_error *err);

/* What the node itself remembers, or NULL. */
const tgd_node_origin *tgd_evidence_origin(const tgd_evidence *evidence, tgd_node v);

/* When a node was made; 0: before the recorder began, or that cannot be told. */
uint64_t tgd_evidence_made(const tgd_evidence *evidence, tgd_node v);

/* The op that made a node, or NULL: it was made before the recorder began, or its row is gone. */
const tgd_op_row *tgd_evidence_op(const tgd_evidence *evidence, tgd_node v);

/* The op that made the node with these numbers, in this graph or not; or NULL. */
const tgd_op_row *tgd_evidence_maker(const tgd_evidence *evidence, uint64_t thread, uint64_t sequence_nr);

/* The place in words, and its callers: an index in report->sources, TGD_NONE where nothing is known. */
tgd_status tgd_evidence_source(tgd_evidence *evidence, const tgd_place *place, uint32_t *out);

/* "add_" of "aten::add_" */
const char *tgd_bare_name(const char *name);

/* First element that is not before (a, b). */
uint32_t tgd_sorted_from(const tgd_sorted *rows, uint32_t n, uint64_t a, uint64_t b);

/* ---- what is asked ---- */

/* Where each node was made, with what op, and by which other node's backward. */
tgd_status tgd_locate_nodes(tgd_evidence *evidence);
/* Who changed the saved tensors; changes that the version check does not see. */
tgd_status tgd_find_culprits(tgd_evidence *evidence);
/* Changes behind saved-tensor hooks and checkpoints (silent.c). */
tgd_status tgd_find_packed(tgd_evidence *evidence);
/* Changes that only checksums show (foreign.c). */
tgd_status tgd_find_foreign(tgd_evidence *evidence);
/* What custom Functions and hooks did wrong (custom.c). */
tgd_status tgd_find_custom(tgd_evidence *evidence);
/* Where the way from parameters to the roots was cut. */
tgd_status tgd_find_cuts(tgd_evidence *evidence);
/* Where the forward made the NaN or infinity that a root shows (forward.c). */
tgd_status tgd_find_forward(tgd_evidence *evidence);

#endif
