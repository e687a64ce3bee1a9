/*
 * Building documents: a byte buffer that flushes into a sink, with the escapes that our formats need.
 * Failure is sticky: appends after one do nothing, and tgd_text_finish() reports it. Numbers are written the
 * same in every locale.
 */
#ifndef TGD_TEXT_H
#define TGD_TEXT_H

#include "error.h"
#include <stdbool.h>

typedef struct tgd_text {
    char *bytes; /* Owned */
    size_t n, capacity;
    tgd_sink sink; /* NULL: everything stays in bytes */
    void *context; /* Borrowed, for sink */
    tgd_status status;
    int os_errno;
} tgd_text;

void tgd_text_init(tgd_text *text, tgd_sink sink, void *context);
/* Flushes what is left and frees the buffer. */
tgd_status tgd_text_finish(tgd_text *text, tgd_error *err);
/* Frees without flushing. */
void tgd_text_drop(tgd_text *text);
/* What was written to `words`, as a string that lives until words is dropped; "" if that failed, and then out takes the
   failure over. */
const char *tgd_text_words(tgd_text *out, tgd_text *words);

void tgd_text_bytes(tgd_text *text, const char *bytes, size_t n);
void tgd_text_str(tgd_text *text, const char *s);
/* Only for formats without %f, %e, %g: those would follow the locale. */
void tgd_text_printf(tgd_text *text, const char *format, ...) TGD_PRINTF(2, 3);
/* Fixed point, at most 6 decimals, "." whatever the locale. */
void tgd_text_fixed(tgd_text *text, double value, int decimals);
/* A JSON number that reads back as the same double; null where it is not finite. */
void tgd_text_real(tgd_text *text, double value);
/* "1.23 ms": three figures. */
void tgd_text_duration(tgd_text *text, uint64_t ns);
/* "1.5 MB", "312 bytes": powers of 1000, three figures. */
void tgd_text_size(tgd_text *text, uint64_t bytes);
/* "12,345" */
void tgd_text_count(tgd_text *text, uint64_t n);

/* A JSON string with its quotes; invalid UTF-8 and control characters are escaped or replaced by U+FFFD. */
void tgd_text_json(tgd_text *text, const char *s);
/* XML text or attribute value: & < > " ' escaped, characters that XML 1.0 forbids replaced by U+FFFD. */
void tgd_text_xml(tgd_text *text, const char *s);
/* One line for a terminal or a label: control characters (newlines, escapes) become spaces or U+FFFD, invalid
   UTF-8 becomes U+FFFD, and past `most` characters (0: no limit) the middle gives way to "...". */
void tgd_text_line(tgd_text *text, const char *s, size_t most);

/* Decode one character of UTF-8 from s[0..n), n > 0. Returns how many bytes it took; *out is U+FFFD where they
   are not valid (overlong, surrogate, out of range, cut off). */
size_t tgd_utf8_next(const char *s, size_t n, uint32_t *out);
/* Encode into buffer (4 bytes); returns the length. */
size_t tgd_utf8_put(uint32_t character, char *buffer);

#endif
