/* What PyTorch refused at once: an in-place op in the forward, or the root of a backward. */
#include "evidence.h"

#include <stdlib.h>
#include <string.h>

tgd_status tgd_keep_refusal(tgd_report *report, const tgd_refusal *refusal, tgd_error *err)
{
    if (refusal->message != NULL) {
        size_t size = strlen(refusal->message) + 1;
        report->refused_message = malloc(size);
        if (report->refused_message == NULL) {
            return tgd_fail_memory(err);
        }
        memcpy(report->refused_message, refusal->message, size);
    }
    report->refused = true;
    report->refusal = *refusal;
    report->refusal.message = report->refused_message;
    if (refusal->write != NULL) {
        report->refused_write = *refusal->write;
        report->refusal.write = &report->refused_write;
    }
    return TGD_OK;
}

tgd_status tgd_judge_refusal(tgd_report *report, tgd_error *err)
{
    if (!report->refused) {
        return TGD_OK;
    }
    const tgd_write_row *write = report->refusal.write;
    tgd_finding_row row = {.kind = write != NULL ? TGD_IN_PLACE_REFUSED : TGD_BAD_ROOT,
                           .severity = TGD_ERROR,
                           .detail = write != NULL ? TGD_DETAIL_REFUSED_WRITE : TGD_DETAIL_REFUSED_ROOT,
                           .node = TGD_NONE, .saved = TGD_NONE, .parameter = TGD_NONE, .root = 0,
                           .other = TGD_NONE, .where = TGD_NONE, .culprit = true, .group = report->n_groups++};
    tgd_node root = report->graph.n_roots > 0 ? report->graph.roots[0].node : TGD_NONE;
    report->root_fails = true;
    if (write == NULL) {
        row.node = root;
    } else {
        row.op = tgd_bare_name(write->name);
        bool leaf = root != TGD_NONE && report->graph.nodes[root].leaf != TGD_NONE;
        row.node = leaf ? TGD_NONE : root;
    }
    return tgd_report_add(report, row, err);
}
