/* Slugs and statements, all expanded from tgd_findings.def. */
#include "torchgraphdbg/tgd.h"

#include <assert.h>

static const char *const slugs[] = {
#define TGD_FINDING_KIND(id, slug, statement) slug,
#include "torchgraphdbg/tgd_findings.def"
};

static const char *const statements[] = {
#define TGD_FINDING_KIND(id, slug, statement) statement,
#include "torchgraphdbg/tgd_findings.def"
};

static const char *const reasons[] = {
    NULL,
#define TGD_REASON_KIND(id, slug, statement) slug,
#include "torchgraphdbg/tgd_findings.def"
};

static const char *const reason_statements[] = {
    NULL,
#define TGD_REASON_KIND(id, slug, statement) statement,
#include "torchgraphdbg/tgd_findings.def"
};

const char *tgd_finding_slug(tgd_finding_kind kind)
{
    assert(kind >= 0 && kind < TGD_N_FINDING_KINDS);
    return slugs[kind];
}

const char *tgd_finding_statement(tgd_finding_kind kind)
{
    assert(kind >= 0 && kind < TGD_N_FINDING_KINDS);
    return statements[kind];
}

const char *tgd_reason_statement(tgd_reason reason)
{
    assert(reason >= 0 && reason < TGD_N_REASONS);
    return reason_statements[reason];
}

const char *tgd_reason_slug(tgd_reason reason)
{
    assert(reason >= 0 && reason < TGD_N_REASONS);
    return reasons[reason];
}

const char *tgd_severity_slug(tgd_severity severity)
{
    switch (severity) {
    case TGD_ERROR:
        return "error";
    case TGD_WARNING:
        return "warning";
    case TGD_NOTE:
        return "note";
    }
    return "";
}

const char *tgd_saved_state_slug(tgd_saved_state state)
{
    switch (state) {
    case TGD_SAVED_OK:
        return "ok";
    case TGD_SAVED_NONE:
        return "none";
    case TGD_SAVED_MODIFIED:
        return "modified";
    case TGD_SAVED_DETACHED:
        return "detached";
    case TGD_SAVED_RELEASED:
        return "released";
    case TGD_SAVED_STORAGE_FREED:
        return "storage-freed";
    case TGD_SAVED_STORAGE_CHANGED:
        return "storage-changed";
    case TGD_SAVED_HOOKED:
        return "hooked";
    case TGD_SAVED_UNCHECKED:
        return "unchecked";
    }
    return "";
}

const char *tgd_node_kind_slug(tgd_node_kind kind)
{
    switch (kind) {
    case TGD_NODE_BUILTIN:
        return "builtin";
    case TGD_NODE_ACCUMULATE_GRAD:
        return "accumulate-grad";
    case TGD_NODE_PYTHON:
        return "python";
    case TGD_NODE_CPP:
        return "cpp";
    case TGD_NODE_COPY_SLICES:
        return "copy-slices";
    case TGD_NODE_ERROR:
        return "error";
    case TGD_NODE_OTHER:
        return "other";
    }
    return "";
}
