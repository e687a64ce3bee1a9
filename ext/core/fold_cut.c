/*
 * Opening a fold: by module where names tell, else by what repeats, else by packing neighbours. Work is linear in
 * the units of the item; the search for repeats stops after a fixed number of comparisons per unit.
 */
#include "fold_cut.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL = 32,        /* of so few units every one may be shown, */
    REPEATS_FROM = 12, /* of more only so many pieces before repeats are looked for */
    TRIES = 6,         /* periods tried at one place */
    WORK_PER_PIECE = 24,
    LONG_STRETCH = 4 /* a stretch is divided into parts of at least so many pieces */
};

tgd_status tgd_items_add(tgd_items *items, tgd_item item, tgd_error *err)
{
    if (items->n == items->capacity) {
        uint32_t capacity = items->capacity == 0 ? 32 : items->capacity * 2;
        tgd_item *rows = realloc(items->rows, capacity * sizeof *rows);
        if (rows == NULL) {
            return tgd_fail_memory(err);
        }
        items->rows = rows;
        items->capacity = capacity;
    }
    items->rows[items->n++] = item;
    return TGD_OK;
}

void tgd_items_clear(tgd_items *items)
{
    free(items->rows);
    *items = (tgd_items){0};
}

/* ---- pieces ---- */

static tgd_item make_item(const tgd_units *units, uint32_t a, uint32_t b, uint32_t context, uint32_t module)
{
    tgd_item item = {.a = a, .b = b, .context = context, .module = TGD_NONE, .copies = 1};
    item.form = b - a == 1 ? TGD_FOLD_ONE : module != TGD_NONE ? TGD_FOLD_MODULE : TGD_FOLD_RUN;
    if (item.form == TGD_FOLD_MODULE) {
        item.module = module;
    } else if (item.form == TGD_FOLD_ONE && module != TGD_NONE && units->named[a]) {
        item.module = units->module[a];
    }
    return item;
}

/* The units [a, b) in pieces: one per module below `context` and stay in it, one per unit that belongs to context
   itself. A unit without a name between two pieces of one module goes with them. */
static tgd_status cut_pieces(tgd_items *out, const tgd_units *units, uint32_t a, uint32_t b, uint32_t context,
                             tgd_error *err)
{
    out->n = 0;
    uint32_t current = TGD_NONE;
    for (uint32_t u = a; u < b; u++) {
        uint32_t below = tgd_module_below(units, context, units->module[u]);
        if (below == TGD_NONE && current != TGD_NONE && !units->named[u] && u + 1 < b &&
            tgd_module_below(units, context, units->module[u + 1]) == current) {
            below = current;
        }
        if (below != TGD_NONE && below == current) {
            tgd_item *last = &out->rows[out->n - 1];
            *last = make_item(units, last->a, u + 1, context, below);
        } else {
            tgd_status status = tgd_items_add(out, make_item(units, u, u + 1, context, below), err);
            if (status != TGD_OK) {
                return status;
            }
        }
        current = below;
    }
    return TGD_OK;
}

/* ---- repeats ---- */

static uint64_t item_hash(const tgd_units *units, const tgd_item *item, bool same)
{
    const uint64_t *hashes = same ? units->same : units->alike;
    uint64_t hash = item->form == TGD_FOLD_REPEAT ? item->copies : 0;
    for (uint32_t u = item->a; u < item->b; u++) {
        hash = (hash ^ hashes[u]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return hash;
}

/* next[i]: the next place after i with the same symbol, or TGD_NONE */
static tgd_status link_equal(const uint64_t *symbols, uint32_t *next, uint32_t n, tgd_error *err)
{
    uint32_t size = 16;
    while (size < 2 * n && size < (1u << 30)) {
        size *= 2;
    }
    uint32_t *table = malloc(size * sizeof *table);
    if (table == NULL) {
        return tgd_fail_memory(err);
    }
    memset(table, 0xFF, size * sizeof *table);
    for (uint32_t i = n; i > 0; i--) {
        uint64_t at = symbols[i - 1] ^ (symbols[i - 1] >> 33);
        while (table[at & (size - 1)] != TGD_NONE && symbols[table[at & (size - 1)]] != symbols[i - 1]) {
            at++;
        }
        next[i - 1] = table[at & (size - 1)];
        table[at & (size - 1)] = i - 1;
    }
    free(table);
    return TGD_OK;
}

typedef struct repeat {
    uint32_t period, copies;
} repeat;

/* The repeat that starts at `at` and covers most, {0, 0} for none. */
static repeat repeat_at(const uint64_t *symbols, const uint32_t *next, uint32_t n, uint32_t at, uint32_t *dead,
                        uint64_t *work)
{
    repeat best = {0, 0};
    uint32_t other = next[at];
    for (int tries = 0; tries < TRIES && other != TGD_NONE && *work > 0; tries++, other = next[other]) {
        uint32_t period = other - at;
        if (dead[2 * tries] == period && dead[2 * tries + 1] > other) {
            continue; /* known to end before one whole copy */
        }
        uint32_t length = 0;
        while (other + length < n && symbols[at + length] == symbols[other + length] && *work > 0) {
            length++;
            (*work)--;
        }
        uint32_t copies = 1 + length / period;
        if (copies < 2) {
            dead[2 * tries] = period;
            dead[2 * tries + 1] = other + length;
            continue;
        }
        bool enough = copies > 2 || period >= 3;
        if (enough && (uint64_t)copies * period > (uint64_t)best.copies * best.period) {
            best = (repeat){period, copies};
        }
    }
    return best;
}

static tgd_status fold_repeats(tgd_items *items, const tgd_units *units, bool same, tgd_error *err)
{
    uint32_t n = items->n;
    uint64_t *symbols = malloc(n * sizeof *symbols);
    uint32_t *next = malloc(n * sizeof *next);
    tgd_status status = symbols == NULL || next == NULL ? tgd_fail_memory(err) : TGD_OK;
    if (status == TGD_OK) {
        for (uint32_t i = 0; i < n; i++) {
            symbols[i] = item_hash(units, &items->rows[i], same);
        }
        status = link_equal(symbols, next, n, err);
    }
    if (status == TGD_OK) {
        uint64_t work = (uint64_t)n * WORK_PER_PIECE;
        uint32_t dead[2 * TRIES] = {0};
        uint32_t kept = 0;
        for (uint32_t i = 0; i < n;) {
            repeat found = repeat_at(symbols, next, n, i, dead, &work);
            if (found.copies == 0) {
                items->rows[kept++] = items->rows[i++];
                continue;
            }
            tgd_item first = items->rows[i];
            tgd_item last = items->rows[i + found.period * found.copies - 1];
            items->rows[kept++] = (tgd_item){.a = first.a,
                                             .b = last.b,
                                             .context = first.context,
                                             .module = found.period == 1 ? first.module : TGD_NONE,
                                             .copies = found.copies,
                                             .identical = same,
                                             .form = TGD_FOLD_REPEAT};
            i += found.period * found.copies;
        }
        items->n = kept;
    }
    free(symbols);
    free(next);
    return status;
}

/* ---- packing ---- */

/* Of the gaps behind rows[from .. to), the one that fewest edges cross. */
static uint32_t thinnest_gap(const tgd_units *units, const tgd_item *rows, uint32_t from, uint32_t to)
{
    uint32_t best = from;
    for (uint32_t i = from + 1; i < to; i++) {
        if (units->cross[rows[i].b - 1] < units->cross[rows[best].b - 1]) {
            best = i;
        }
    }
    return best;
}

static tgd_item join(const tgd_units *units, const tgd_item *first, const tgd_item *last)
{
    if (first == last) {
        return *first;
    }
    return make_item(units, first->a, last->b, first->context, TGD_NONE);
}

/* rows[from .. to) as `parts` items */
static void pack_stretch(const tgd_units *units, tgd_item *rows, uint32_t from, uint32_t to, uint32_t parts,
                         uint32_t *kept)
{
    while (from < to) {
        uint32_t left = to - from;
        uint32_t last = to - 1;
        if (parts >= left) {
            last = from;
        } else if (parts > 1) {
            uint32_t even = left / parts;
            uint32_t slack = even / 3;
            uint32_t low = from + even - 1 - slack;
            uint32_t high = from + even + slack < to ? from + even + slack : to;
            last = thinnest_gap(units, rows, low, high);
        }
        rows[(*kept)++] = join(units, &rows[from], &rows[last]);
        from = last + 1;
        parts = parts > 1 ? parts - 1 : 1;
    }
}

/* A repeat stays when it is a good part of the whole. */
static bool stays(const tgd_items *items, const tgd_units *units, uint32_t i, uint32_t whole)
{
    const tgd_item *item = &items->rows[i];
    return i == 0 || i + 1 == items->n || (item->form == TGD_FOLD_REPEAT && (item->b - item->a) >= whole / 8) ||
           tgd_item_has_must(units, item);
}

/* At most about `most` items. First, last, repeats and those that must be shown stay; a stretch between them is
   shown whole as long as there is room, and else joined. */
static void pack(tgd_items *items, const tgd_units *units, uint32_t most)
{
    uint32_t n = items->n;
    uint32_t whole = items->rows[n - 1].b - items->rows[0].a;
    uint32_t n_stay = 0;
    uint32_t n_stretches = 0;
    uint32_t longest = 0;
    uint32_t length = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool keep = stays(items, units, i, whole);
        length = keep ? 0 : length + 1;
        longest = length > longest ? length : longest;
        n_stay += keep;
        n_stretches += length == 1;
    }
    uint32_t spare = most > n_stay + n_stretches ? most - n_stay - n_stretches : 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n;) {
        if (stays(items, units, i, whole)) {
            items->rows[kept++] = items->rows[i++];
            continue;
        }
        uint32_t end = i + 1;
        while (end < n && !stays(items, units, end, whole)) {
            end++;
        }
        uint32_t parts = 1;
        if (end - i <= spare + 1) {
            parts = end - i;
        } else if (end - i == longest && n_stretches == 1) {
            parts = 1 + (spare < longest / LONG_STRETCH ? spare : longest / LONG_STRETCH);
        }
        spare -= parts - 1;
        pack_stretch(units, items->rows, i, end, parts, &kept);
        i = end;
    }
    items->n = kept;
}

/* ---- opening ---- */

/* One copy of a repeat: its module if it is one, else a run. */
static tgd_item copy_item(const tgd_units *units, const tgd_item *repeat_item, uint32_t from, uint32_t n)
{
    uint32_t period = (repeat_item->b - repeat_item->a) / repeat_item->copies;
    uint32_t a = repeat_item->a + from * period;
    tgd_item item = make_item(units, a, a + n * period, repeat_item->context, TGD_NONE);
    if (n > 1) {
        item.form = TGD_FOLD_REPEAT;
        item.copies = n;
        item.identical = repeat_item->identical;
        item.module = repeat_item->module == TGD_NONE
                          ? TGD_NONE
                          : tgd_module_below(units, item.context, units->module[a]);
        item.closed = n > 2;
        return item;
    }
    uint32_t module = tgd_module_below(units, item.context, units->module[a]);
    for (uint32_t u = a; u < item.b && module != TGD_NONE; u++) {
        uint32_t below = tgd_module_below(units, item.context, units->module[u]);
        module = below == module || (below == TGD_NONE && !units->named[u]) ? module : TGD_NONE;
    }
    return make_item(units, a, item.b, item.context, module);
}

static tgd_status open_repeat(tgd_items *out, const tgd_units *units, const tgd_item *item, tgd_error *err)
{
    uint32_t period = (item->b - item->a) / item->copies;
    uint32_t focus = item->copies;
    for (uint32_t u = item->a; u < item->b && focus == item->copies; u++) {
        focus = units->must[u] ? (u - item->a) / period : focus;
    }
    tgd_status status = TGD_OK;
    if (focus < item->copies) {
        uint32_t after = item->copies - focus - 1;
        if (focus > 0) {
            status = tgd_items_add(out, copy_item(units, item, 0, focus), err);
        }
        if (status == TGD_OK) {
            status = tgd_items_add(out, copy_item(units, item, focus, 1), err);
        }
        if (status == TGD_OK && after > 0) {
            status = tgd_items_add(out, copy_item(units, item, focus + 1, after), err);
        }
        return status;
    }
    uint32_t last = item->copies - 1;
    status = tgd_items_add(out, copy_item(units, item, 0, 1), err);
    if (status == TGD_OK && last > 1) {
        status = tgd_items_add(out, copy_item(units, item, 1, last - 1), err);
    }
    return status != TGD_OK ? status : tgd_items_add(out, copy_item(units, item, last, 1), err);
}

tgd_status tgd_item_open(tgd_items *out, const tgd_units *units, const tgd_item *item, uint32_t most, tgd_error *err)
{
    out->n = 0;
    if (item->form == TGD_FOLD_REPEAT) {
        return open_repeat(out, units, item, err);
    }
    uint32_t context = item->form == TGD_FOLD_MODULE ? item->module : item->context;
    tgd_status status = cut_pieces(out, units, item->a, item->b, context, err);
    while (status == TGD_OK && out->n == 1 && out->rows[0].form == TGD_FOLD_MODULE) {
        context = out->rows[0].module;
        status = cut_pieces(out, units, item->a, item->b, context, err);
    }
    uint32_t bearable = item->b - item->a > SMALL && most > REPEATS_FROM ? REPEATS_FROM : most;
    for (int pass = 0; pass < 4 && status == TGD_OK && out->n > (pass < 2 ? bearable : most); pass++) {
        uint32_t before = out->n;
        status = fold_repeats(out, units, pass < 2, err); /* first what is identical, then what is alike */
        pass += pass == 0 && out->n == before;            /* nothing new for the second look */
    }
    if (status == TGD_OK && out->n > most) {
        pack(out, units, most);
    }
    return status;
}

tgd_status tgd_items_spread(tgd_items *items, const tgd_units *units, uint32_t budget, tgd_error *err)
{
    static const double much = 8; /* decades */
    bool fades = units->measured != NULL && units->highest - units->lowest >= much;
    if ((!fades && units->budget == 0) || items->n >= budget) {
        return TGD_OK;
    }
    uint32_t repeats = 0;
    for (uint32_t i = 0; i < items->n; i++) {
        repeats += items->rows[i].form == TGD_FOLD_REPEAT;
    }
    tgd_items out = {0};
    tgd_status status = TGD_OK;
    uint32_t room = budget - items->n;
    for (uint32_t i = 0; i < items->n && status == TGD_OK; i++) {
        const tgd_item *item = &items->rows[i];
        uint32_t units_each = item->copies == 0 ? 0 : (item->b - item->a) / item->copies;
        bool even = item->form == TGD_FOLD_REPEAT && units_each * item->copies == item->b - item->a;
        uint32_t pieces = even ? room / repeats + 1 : 1;
        pieces = pieces > item->copies / 2 ? item->copies / 2 : pieces;
        if (pieces < 2) {
            status = tgd_items_add(&out, *item, err);
            continue;
        }
        uint32_t done = 0;
        for (uint32_t p = 0; p < pieces && status == TGD_OK; p++) {
            uint32_t copies = (item->copies - done) / (pieces - p);
            tgd_item piece = *item;
            piece.a = item->a + done * units_each;
            piece.b = piece.a + copies * units_each;
            piece.copies = copies;
            if (item->module != TGD_NONE) {
                uint32_t module = tgd_module_below(units, item->context, units->module[piece.a]);
                piece.module = module == TGD_NONE ? item->module : module;
            }
            done += copies;
            status = tgd_items_add(&out, piece, err);
        }
    }
    if (status != TGD_OK) {
        tgd_items_clear(&out);
        return status;
    }
    tgd_items_clear(items);
    *items = out;
    return TGD_OK;
}

tgd_status tgd_items_all(tgd_items *items, const tgd_units *units, tgd_error *err)
{
    tgd_status status = TGD_OK;
    for (uint32_t u = 0; u < units->n && status == TGD_OK; u++) {
        uint32_t module = units->module[u];
        uint32_t above = units->named[u] ? units->modules[module].parent : module;
        status = tgd_items_add(items,
                               (tgd_item){.a = u,
                                          .b = u + 1,
                                          .context = above == TGD_NONE ? 0 : above,
                                          .module = units->named[u] ? module : TGD_NONE,
                                          .copies = 1,
                                          .form = TGD_FOLD_ONE},
                               err);
    }
    return status;
}
