/* Which folds of the sheet can be opened, and what is then seen. */
#include "page.h"

#include "graph_panel.h"

#include <stdlib.h>

enum { MOST_DEPTH = 4, MOST_BOXES = 600 };

static tgd_status append(tgd_page *page, tgd_fold *fold, tgd_text *drawing, double w, double h, uint32_t depth,
                         tgd_error *err)
{
    uint32_t *inside = calloc(fold->n_boxes + 1, sizeof *inside);
    if (inside == NULL) {
        return tgd_fail_memory(err);
    }
    page->pictures[page->n_pictures++] =
        (tgd_page_picture){.fold = *fold, .drawing = *drawing, .inside = inside, .w = w, .h = h, .depth = depth};
    *fold = (tgd_fold){0};
    tgd_text_init(drawing, NULL, NULL);
    return TGD_OK;
}

/* "transformer.h.3", or what stands on the box */
static void write_title(tgd_text *text, const tgd_fold *fold, uint32_t box)
{
    const tgd_fold_box *row = &fold->boxes[box];
    if (row->form == TGD_FOLD_MODULE && row->module != TGD_NONE) {
        tgd_module_path(text, fold->units, row->module);
    } else {
        tgd_fold_title(text, fold, box);
    }
}

/* One fold. *room is what is left; it stays shut where it does not fit, or holds no more than one box. */
static tgd_status open_fold(tgd_page *page, uint32_t picture, uint32_t box, size_t *room, uint32_t *n_boxes,
                            tgd_error *err)
{
    tgd_fold fold = {0};
    tgd_text title;
    tgd_text drawing;
    double w = 0;
    double h = 0;
    tgd_text_init(&title, NULL, NULL);
    tgd_text_init(&drawing, NULL, NULL);
    write_title(&title, &page->pictures[picture].fold, box);
    const char *words = tgd_text_words(&drawing, &title);
    tgd_status status = tgd_graph_inside_draw(&drawing, &fold, page->units, &page->pictures[picture].fold.boxes[box],
                                              words, &w, &h, err);
    if (status == TGD_OK && drawing.status != TGD_OK) {
        status = tgd_fail_memory(err);
    }
    if (status == TGD_OK) {
        if (fold.n_boxes > 1 && drawing.n <= *room) {
            size_t size = drawing.n;
            uint32_t more = fold.n_boxes;
            status = append(page, &fold, &drawing, w, h, page->pictures[picture].depth + 1, err);
            if (status == TGD_OK) {
                *room -= size;
                *n_boxes += more;
                page->pictures[picture].inside[box] = page->n_pictures - 1;
            }
        } else {
            page->n_shut++;
        }
    }
    tgd_text_drop(&title);
    tgd_text_drop(&drawing);
    tgd_fold_clear(&fold);
    return status;
}

tgd_status tgd_page_open_folds(tgd_page *page, tgd_fold *sheet, size_t room, tgd_error *err)
{
    tgd_text none;
    tgd_text_init(&none, NULL, NULL);
    uint32_t n_boxes = 0;
    page->pictures = calloc(TGD_PAGE_PICTURES, sizeof *page->pictures);
    tgd_status status = page->pictures == NULL ? tgd_fail_memory(err) : append(page, sheet, &none, 0, 0, 0, err);
    for (uint32_t p = 0; p < page->n_pictures && status == TGD_OK; p++) {
        /* what has a finding inside comes first */
        for (int pass = 0; pass < 2 && status == TGD_OK; pass++) {
            for (uint32_t b = 0; b < page->pictures[p].fold.n_boxes && status == TGD_OK; b++) {
                const tgd_fold_box *box = &page->pictures[p].fold.boxes[b];
                if (box->form == TGD_FOLD_ONE || (box->n_marks > 0) != (pass == 0)) {
                    continue;
                }
                if (page->n_pictures == TGD_PAGE_PICTURES || n_boxes >= MOST_BOXES ||
                    page->pictures[p].depth >= MOST_DEPTH || room < 4000) {
                    page->n_shut++;
                } else {
                    status = open_fold(page, p, b, &room, &n_boxes, err);
                }
            }
        }
    }
    return status;
}

void tgd_page_clear(tgd_page *page)
{
    for (uint32_t p = 0; p < page->n_pictures; p++) {
        tgd_fold_clear(&page->pictures[p].fold);
        tgd_text_drop(&page->pictures[p].drawing);
        free(page->pictures[p].inside);
    }
    free(page->pictures);
    page->pictures = NULL;
    page->n_pictures = 0;
}
