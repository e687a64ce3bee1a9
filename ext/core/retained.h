/* The parts of tgd_judge_retained(). */
#ifndef TGD_RETAINED_H
#define TGD_RETAINED_H

#include "census.h"
#include "evidence.h"

/* Adds a finding of kind retained-graph; its kind, group and `other` are filled here. name and place may be NULL. */
tgd_status tgd_retained_add(tgd_evidence *evidence, tgd_finding_row row, const tgd_fact_row *fact,
                            const char *name, const tgd_place *place);

/* Adds the bytes of what a node saved, each storage once; those of leaves are not held by the graph. */
tgd_status tgd_retained_measure(const tgd_graph *graph, tgd_node v, tgd_address_map *counted, tgd_fact_row *fact,
                                tgd_error *err);

/* growing.c: graphs that reach back over several backwards, and tensors of several steps that are alive. */
tgd_status tgd_find_growing(tgd_evidence *evidence, const tgd_census *census);
/* parallel.c: like parts that wait in this graph. */
tgd_status tgd_find_parallel(tgd_evidence *evidence);

#endif
