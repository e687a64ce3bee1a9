#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSH_AT = 1 << 16 };

void tgd_text_init(tgd_text *text, tgd_sink sink, void *context)
{
    *text = (tgd_text){.sink = sink, .context = context, .status = TGD_OK};
}

static void flush(tgd_text *text)
{
    if (text->sink == NULL || text->n == 0 || text->status != TGD_OK) {
        return;
    }
    int refused = text->sink(text->context, text->bytes, text->n);
    text->n = 0;
    if (refused != 0) {
        text->status = TGD_EIO;
        text->os_errno = refused;
    }
}

tgd_status tgd_text_finish(tgd_text *text, tgd_error *err)
{
    flush(text);
    tgd_status status = text->status;
    int os_errno = text->os_errno;
    tgd_text_drop(text);
    if (status == TGD_ENOMEM) {
        return tgd_fail_memory(err);
    }
    if (status == TGD_EIO) {
        return tgd_fail_io(err, os_errno, "cannot write");
    }
    return TGD_OK;
}

void tgd_text_drop(tgd_text *text)
{
    free(text->bytes);
    text->bytes = NULL;
    text->n = text->capacity = 0;
}

const char *tgd_text_words(tgd_text *out, tgd_text *words)
{
    tgd_text_bytes(words, "", 1);
    if (words->status != TGD_OK) {
        out->status = out->status == TGD_OK ? words->status : out->status;
        return "";
    }
    return words->bytes;
}

/* Room for n more bytes, or NULL and a sticky failure. */
static char *room(tgd_text *text, size_t n)
{
    if (text->status != TGD_OK) {
        return NULL;
    }
    if (text->sink != NULL && text->n >= FLUSH_AT) {
        flush(text);
        if (text->status != TGD_OK) {
            return NULL;
        }
    }
    if (n > text->capacity - text->n) {
        size_t capacity = text->capacity == 0 ? 256 : text->capacity;
        while (capacity - text->n < n) {
            if (capacity > SIZE_MAX / 2) {
                text->status = TGD_ENOMEM;
                return NULL;
            }
            capacity *= 2;
        }
        char *bytes = realloc(text->bytes, capacity);
        if (bytes == NULL) {
            text->status = TGD_ENOMEM;
            return NULL;
        }
        text->bytes = bytes;
        text->capacity = capacity;
    }
    return text->bytes + text->n;
}

void tgd_text_bytes(tgd_text *text, const char *bytes, size_t n)
{
    if (n == 0) {
        return;
    }
    char *to = room(text, n);
    if (to != NULL) {
        memcpy(to, bytes, n);
        text->n += n;
    }
}

void tgd_text_str(tgd_text *text, const char *s)
{
    tgd_text_bytes(text, s, strlen(s));
}

void tgd_text_printf(tgd_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int needed = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (needed <= 0) {
        return;
    }
    char *to = room(text, (size_t)needed + 1);
    if (to == NULL) {
        return;
    }
    va_start(args, format);
    vsnprintf(to, (size_t)needed + 1, format, args);
    va_end(args);
    text->n += (size_t)needed;
}

void tgd_text_fixed(tgd_text *text, double value, int decimals)
{
    static const double scales[] = {1, 10, 100, 1e3, 1e4, 1e5, 1e6};
    if (decimals < 0 || decimals > 6) {
        decimals = 6;
    }
    if (!(value > -1e12 && value < 1e12)) {
        tgd_text_str(text, value != value ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    uint64_t scale = (uint64_t)scales[decimals];
    double size = value < 0 ? -value : value;
    uint64_t scaled = (uint64_t)(size * scales[decimals] + 0.5);
    if (value < 0 && scaled != 0) {
        tgd_text_str(text, "-");
    }
    tgd_text_printf(text, "%llu", (unsigned long long)(scaled / scale));
    if (decimals > 0) {
        tgd_text_printf(text, ".%0*llu", decimals, (unsigned long long)(scaled % scale));
    }
}

void tgd_text_real(tgd_text *text, double value)
{
    char digits[40];
    if (!(value - value == 0)) {
        tgd_text_str(text, "null");
        return;
    }
    int n = snprintf(digits, sizeof digits, "%.17g", value);
    bool point = false;
    for (int i = 0; i < n; i++) { /* the locale's decimal point may be several bytes */
        if (strchr("0123456789+-e", digits[i]) != NULL) {
            tgd_text_bytes(text, &digits[i], 1);
        } else if (!point) {
            tgd_text_str(text, ".");
            point = true;
        }
    }
}

void tgd_text_duration(tgd_text *text, uint64_t ns)
{
    static const char *const units[] = {"us", "ms", "s"};
    double value = (double)ns / 1000;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    tgd_text_fixed(text, value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
    tgd_text_printf(text, " %s", units[unit]);
}

void tgd_text_size(tgd_text *text, uint64_t bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    if (bytes < 1000) {
        tgd_text_printf(text, "%llu byte%s", (unsigned long long)bytes, bytes == 1 ? "" : "s");
        return;
    }
    double value = (double)bytes / 1000;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    tgd_text_fixed(text, value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
    tgd_text_printf(text, " %s", units[unit]);
}

void tgd_text_count(tgd_text *text, uint64_t n)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            tgd_text_bytes(text, ",", 1);
        }
        tgd_text_bytes(text, digits + i, 1);
    }
}

size_t tgd_utf8_next(const char *s, size_t n, uint32_t *out)
{
    const unsigned char *p = (const unsigned char *)s;
    if (p[0] < 0x80) {
        *out = p[0];
        return 1;
    }
    size_t length = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
    *out = 0xFFFD;
    if (p[0] < 0xC2 || p[0] > 0xF4) {
        return 1;
    }
    uint32_t character = p[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (i >= n || (p[i] & 0xC0) != 0x80) {
            return i;
        }
        character = character << 6 | (p[i] & 0x3Fu);
    }
    if (character >= least && character <= 0x10FFFF && (character < 0xD800 || character > 0xDFFF)) {
        *out = character;
    }
    return length;
}

size_t tgd_utf8_put(uint32_t character, char *buffer)
{
    if (character < 0x80) {
        buffer[0] = (char)character;
        return 1;
    }
    if (character < 0x800) {
        buffer[0] = (char)(0xC0 | character >> 6);
        buffer[1] = (char)(0x80 | (character & 0x3F));
        return 2;
    }
    if (character < 0x10000) {
        buffer[0] = (char)(0xE0 | character >> 12);
        buffer[1] = (char)(0x80 | (character >> 6 & 0x3F));
        buffer[2] = (char)(0x80 | (character & 0x3F));
        return 3;
    }
    buffer[0] = (char)(0xF0 | character >> 18);
    buffer[1] = (char)(0x80 | (character >> 12 & 0x3F));
    buffer[2] = (char)(0x80 | (character >> 6 & 0x3F));
    buffer[3] = (char)(0x80 | (character & 0x3F));
    return 4;
}

static void put(tgd_text *text, uint32_t character)
{
    char buffer[4];
    tgd_text_bytes(text, buffer, tgd_utf8_put(character, buffer));
}

void tgd_text_json(tgd_text *text, const char *s)
{
    size_t n = strlen(s);
    tgd_text_bytes(text, "\"", 1);
    for (size_t i = 0; i < n;) {
        uint32_t c;
        i += tgd_utf8_next(s + i, n - i, &c);
        switch (c) {
        case '"':
            tgd_text_str(text, "\\\"");
            break;
        case '\\':
            tgd_text_str(text, "\\\\");
            break;
        case '\n':
            tgd_text_str(text, "\\n");
            break;
        case '\t':
            tgd_text_str(text, "\\t");
            break;
        default:
            if (c < 0x20 || c == 0x7F || c == 0x2028 || c == 0x2029) {
                tgd_text_printf(text, "\\u%04x", (unsigned)c);
            } else {
                put(text, c);
            }
        }
    }
    tgd_text_bytes(text, "\"", 1);
}

void tgd_text_xml(tgd_text *text, const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n;) {
        uint32_t c;
        i += tgd_utf8_next(s + i, n - i, &c);
        switch (c) {
        case '&':
            tgd_text_str(text, "&amp;");
            break;
        case '<':
            tgd_text_str(text, "&lt;");
            break;
        case '>':
            tgd_text_str(text, "&gt;");
            break;
        case '"':
            tgd_text_str(text, "&quot;");
            break;
        case '\'':
            tgd_text_str(text, "&#39;");
            break;
        case '\n':
        case '\t':
            put(text, c);
            break;
        default: {
            bool forbidden = c < 0x20 || c == 0x7F || (c >= 0x80 && c < 0xA0) || c == 0xFFFE || c == 0xFFFF;
            put(text, forbidden ? 0xFFFD : c);
        }
        }
    }
}

/* What a label shows for c: nothing that moves the cursor, ends the line or turns the writing direction. */
static uint32_t shown(uint32_t c)
{
    if (c == '\n' || c == '\t' || c == '\r' || c == 0x2028 || c == 0x2029 || c == 0x85) {
        return ' ';
    }
    bool control = c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) ||
                   c == 0xFFFE || c == 0xFFFF;
    return control ? 0xFFFD : c;
}

void tgd_text_line(tgd_text *text, const char *s, size_t most)
{
    size_t n = strlen(s), count = 0;
    uint32_t c;
    for (size_t i = 0; i < n && most != 0; count++) {
        i += tgd_utf8_next(s + i, n - i, &c);
    }
    if (most == 0 || count <= most) {
        for (size_t i = 0; i < n;) {
            i += tgd_utf8_next(s + i, n - i, &c);
            put(text, shown(c));
        }
        return;
    }
    size_t head = most > 3 ? (most - 3 + 1) / 2 : 0, tail = most > 3 ? most - 3 - head : 0;
    size_t i = 0;
    for (size_t k = 0; k < head; k++) {
        i += tgd_utf8_next(s + i, n - i, &c);
        put(text, shown(c));
    }
    tgd_text_str(text, most >= 3 ? "..." : "");
    size_t at = i;
    for (size_t k = head; k < count - tail; k++) {
        at += tgd_utf8_next(s + at, n - at, &c);
    }
    while (at < n) {
        at += tgd_utf8_next(s + at, n - at, &c);
        put(text, shown(c));
    }
}
