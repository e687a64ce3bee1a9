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

/* ---- findings about several steps (step_words.c) ---- */

/* Behind the message of a freed graph: what carried it into this one. */
void tgd_carrier_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row);
/* What to do about that; false, and nothing written, where it is not known. */
bool tgd_carrier_hint(tgd_text *text, const tgd_report *report, const tgd_finding_row *row);
/* not-in-optimizer and retained-graph */
bool tgd_is_of_steps(const tgd_finding_row *row);
void tgd_steps_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row);
const char *tgd_steps_hint(const tgd_finding_row *row);
void tgd_steps_verdict(tgd_text *text, const tgd_report *report, const tgd_finding_row *row);

#endif
