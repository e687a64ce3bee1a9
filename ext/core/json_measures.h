#ifndef TGD_JSON_MEASURES_H
#define TGD_JSON_MEASURES_H

#include "report.h"

/* The value of the member "measures": an object, or null. */
void tgd_json_measures(tgd_text *text, const tgd_report *report);

#endif
