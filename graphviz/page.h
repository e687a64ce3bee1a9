/* The page: the sheet, what its folds hold, and what there is to say about nodes, within a number of bytes. */
#ifndef TGD_PAGE_H
#define TGD_PAGE_H

#include "fold.h"

enum {
    TGD_PAGE_BYTES = 398000,   /* of the whole file: under 400 kB */
    TGD_PAGE_PICTURES = 48,    /* the sheet's own and the folds that can be opened */
    TGD_PAGE_NODES = 2000,     /* that there is something to say about */
    TGD_PAGE_FINDINGS = 100,
    TGD_PAGE_NEIGHBOURS = 8    /* edges to and from a node that are listed */
};

/* The sheet's graph, which is row 0 and drawn elsewhere, or what is inside one of the boxes. */
typedef struct tgd_page_picture {
    tgd_fold fold;    /* Owned */
    tgd_text drawing; /* Owned */
    uint32_t *inside; /* Owned, per box: the picture of what it holds, or 0 */
    double w, h;
    uint32_t depth;
} tgd_page_picture;

typedef struct tgd_page {
    const tgd_units *units; /* Borrowed */
    tgd_page_picture *pictures; /* Owned */
    uint32_t n_pictures;
    uint32_t n_shut; /* folds that nothing is drawn for */
} tgd_page;

/* ---- page_folds.c ---- */

/**
 * Draw what is inside the folds, nearest to the sheet first, until that takes `room` bytes.
 * @param page   with units and zeros
 * @param sheet  the sheet's own boxes; taken over
 * @return TGD_OK, TGD_ENOMEM, TGD_EGRAPHVIZ; release with tgd_page_clear() in any case
 */
tgd_status tgd_page_open_folds(tgd_page *page, tgd_fold *sheet, size_t room, tgd_error *err);
void tgd_page_clear(tgd_page *page);

/* ---- page_data.c ---- */

/* Everything that the script knows, as JSON that can stand in an HTML document, in about at most `room` bytes: pictures
   and findings, then as many nodes as fit. */
tgd_status tgd_page_data_write(tgd_text *out, const tgd_page *page, size_t room, tgd_error *err);

/* ---- between page_data.c and page_node.c ---- */

/* What has been written so far, and what it takes once it is safe to stand in a page. */
typedef struct tgd_page_data {
    const tgd_page *page;
    uint32_t *source_at; /* Owned, per row of sources: 1 + its place in `sources`, 0 = not there yet */
    tgd_text sources;    /* Owned */
    uint32_t n_sources;
    uint32_t *place;     /* Owned, per node: 1 + its place among the chosen ones, or 0 */
    tgd_node *chosen;    /* Owned */
    uint32_t n_chosen;
    tgd_node *before;    /* Owned, TGD_PAGE_NEIGHBOURS for each chosen node: who leads there */
    uint32_t *n_before;  /* Owned, per chosen node: all of them */
} tgd_page_data;

/* A key and its colon, after a comma but for the first one. */
void tgd_page_key(tgd_text *out, bool *first, const char *name);
/* One line of at most `most` characters, as a JSON string. */
void tgd_page_string(tgd_text *out, const char *s, size_t most);
void tgd_page_member(tgd_text *out, bool *first, const char *name, const char *s, size_t most);
/* The place of a row of the report's sources among those in the page. */
uint32_t tgd_page_source(tgd_page_data *data, uint32_t where);
void tgd_page_node_write(tgd_text *out, tgd_page_data *data, tgd_node v);
/* Bytes that s[0..n) takes where < > & and line separators are escaped. */
size_t tgd_page_inert_length(const char *s, size_t n);

/* ---- the files that the build turns into arrays (page/embed.py) ---- */

extern const char tgd_page_script[], tgd_page_style[];
/* Of tgd_page_script, as a content security policy wants it: "sha256-..." */
extern const char tgd_page_script_hash[];

#endif
