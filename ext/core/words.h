/* Phrases that messages and the verdict share. */
#ifndef TGD_WORDS_H
#define TGD_WORDS_H

#include "judge.h"

/* A name of the user's or of torch's, as one line of bounded length. */
void tgd_name_phrase(tgd_text *text, const char *s);
/* "result", "saved_tensors[1]" */
void tgd_saved_name_phrase(tgd_text *text, const tgd_saved_row *saved);
/* The parameter that the saved tensor is or is a view of; borrowed, or NULL. */
const char *tgd_saved_parameter(const tgd_report *report, const tgd_saved_row *saved);
/* "the root", "the roots' element 2" */
void tgd_root_phrase(tgd_text *text, const tgd_report *report, uint32_t r);

#endif
