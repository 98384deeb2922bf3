/* How packed rows are found: a table of keys by hash, and for each key its rows as a skip list, the latest first. */

#include "packing.h"

#define MOST_LEVELS 10

int chains_levels(uint32_t hash, uint32_t place) {
    uint32_t bits = hash + place * 0x9e3779b1u;
    bits = (bits ^ bits >> 16) * 0x85ebca6bu;
    bits = (bits ^ bits >> 13) * 0xc2b2ae35u;
    bits ^= bits >> 16;
    if (bits & 15) {
        return 0;
    }
    int levels = 1;
    for (bits >>= 4; levels < MOST_LEVELS - 1 && (bits & 7) == 0; bits >>= 3) {
        levels++;
    }
    return levels;
}

/* Return where a row has its link of a level: to the next older row that has links of that level, too. */
static inline uint32_t *link_of(const Rows *self, uint32_t place, int level) {
    Row *row = &self->rows[place];
    return level == 0 ? &row->older : (uint32_t *)(void *)row->data - level;
}

static inline int levels_of(const Rows *self, uint32_t place) { return chains_levels(self->rows[place].hash, place); }

/* --- the table -------------------------------------------------------------------------------------------------------------------- */

/* How many keys are looked up while the parts of a later one are on their way from memory. */
#define AHEAD 8

/* Tell the hash of a plain key. */
static inline int hash_of(const Rows *self, PyObject *key, uint32_t *hash) {
    if (self->text ? !PyUnicode_CheckExact(key) : !PyBytes_CheckExact(key)) {
        return 0;
    }
    *hash = (uint32_t)PyObject_Hash(key);
    return 1;
}

/* Return where in the table the latest row of a key is, or belongs. There has to be a table. */
static uint32_t *place_of(const Rows *self, const Key *key) {
    for (uint32_t at = key->hash & self->mask;; at = (at + 1) & self->mask) {
        if (self->table[at] == NO_ROW) {
            return &self->table[at];
        }
        const Row *row = &self->rows[self->table[at]];
        if (row->hash == key->hash) {
            Parts parts = packing_parts(self, row);
            if (parts.key_length == key->length && memcmp(parts.key, key->data, key->length) == 0) {
                return &self->table[at];
            }
        }
    }
}

int chains_widen(Rows *self) {
    uint64_t size = self->table == NULL ? 0 : (uint64_t)self->mask + 1, wider = size == 0 ? 8 : 2 * size;
    if (3 * ((uint64_t)self->keys + 1) <= 2 * size) {
        return 1;
    }
    uint32_t *table = wider > (uint64_t)NO_ROW || wider > SIZE_MAX / sizeof(uint32_t) ? NULL : PyMem_New(uint32_t, wider);
    if (table == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    memset(table, 0xff, (size_t)wider * sizeof(*table));
    for (uint64_t from = 0; from < size; from++) {
        if (self->table[from] != NO_ROW) {
            uint64_t to = self->rows[self->table[from]].hash & (wider - 1);
            while (table[to] != NO_ROW) {
                to = (to + 1) & (wider - 1);
            }
            table[to] = self->table[from];
        }
    }
    PyMem_Free(self->table);
    self->table = table;
    self->mask = (uint32_t)(wider - 1);
    return 1;
}

/* Free a place of the table. Those behind it that are not where they belong move up, so that looking for them does not end here. */
static void clear_place(Rows *self, uint32_t hole) {
    for (uint32_t at = (hole + 1) & self->mask; self->table[at] != NO_ROW; at = (at + 1) & self->mask) {
        uint32_t home = self->rows[self->table[at]].hash & self->mask;
        if (((at - home) & self->mask) >= ((at - hole) & self->mask)) {
            self->table[hole] = self->table[at];
            hole = at;
        }
    }
    self->table[hole] = NO_ROW;
    self->keys--;
}

/* --- chains ----------------------------------------------------------------------------------------------------------------------- */

/* Tell whether a row comes before where one with this start and place is, or would be. */
static inline int is_before(const Rows *self, uint32_t row, uint32_t delta, uint32_t place) {
    return self->rows[row].delta > delta || (self->rows[row].delta == delta && row > place);
}

/* Return the last row of a chain that is before such a one, or NO_ROW; and in `before` the last ones that have links of each level up to `levels`. */
static uint32_t search(Rows *self, uint32_t first, uint32_t delta, uint32_t place, int levels, uint32_t *before) {
    for (int level = 1; level <= levels; level++) {
        before[level] = NO_ROW;
    }
    if (first == NO_ROW || !is_before(self, first, delta, place)) {
        return NO_ROW;
    }
    for (uint32_t at = first;;) {
        int level = levels_of(self, at);
        for (int each = 1; each <= level && each <= levels; each++) {
            before[each] = at;
        }
        uint32_t next = NO_ROW;
        for (; level >= 0; level--) {
            next = *link_of(self, at, level);
            self->steps++;
            if (next != NO_ROW && is_before(self, next, delta, place)) {
                break;
            }
        }
        if (level < 0) {
            return at;
        }
        at = next;
    }
}

/* Return the first row from one on that has links of a level; that one has links of the level below. */
static uint32_t first_with(Rows *self, uint32_t row, int level) {
    for (; row != NO_ROW && levels_of(self, row) < level; self->steps++) {
        row = *link_of(self, row, level - 1);
    }
    return row;
}

void chains_link(Rows *self, uint32_t place, const Key *key, int levels) {
    uint32_t *latest = place_of(self, key), before[MOST_LEVELS];
    Row *row = &self->rows[place];
    uint32_t last = search(self, *latest, row->delta, place, levels, before), *link = last == NO_ROW ? latest : &self->rows[last].older;
    self->keys += *latest == NO_ROW;
    row->older = *link;
    row->chained = 1;
    *link = place;
    for (int level = 1; level <= levels; level++) {
        uint32_t *own = link_of(self, place, level);
        if (before[level] == NO_ROW) {
            *own = first_with(self, *link_of(self, place, level - 1), level);
        } else {
            *own = *link_of(self, before[level], level);
            *link_of(self, before[level], level) = place;
        }
    }
}

void chains_unlink(Rows *self, uint32_t place) {
    Row *row = &self->rows[place];
    Parts parts = packing_parts(self, row);
    uint32_t *latest = place_of(self, &(Key){.data = parts.key, .length = parts.key_length, .hash = row->hash}), before[MOST_LEVELS];
    int levels = levels_of(self, place);
    uint32_t last = search(self, *latest, row->delta, place, levels, before);
    *(last == NO_ROW ? latest : &self->rows[last].older) = row->older;
    row->chained = 0;
    for (int level = 1; level <= levels; level++) {
        if (before[level] != NO_ROW) {
            *link_of(self, before[level], level) = *link_of(self, place, level);
        }
    }
    if (*latest == NO_ROW) {
        clear_place(self, (uint32_t)(latest - self->table));
    }
}

/* Key number `at` is next: have its successors' places in the table, and then the rows there, on their way from memory. Most keys that are met have
   no row, so that waiting for these two is most of the work. */
void chains_ahead(const Rows *self, PyObject *keys, Py_ssize_t at) {
    Py_ssize_t count = PyList_GET_SIZE(keys);
    if (self->table == NULL) {
        return;
    }
    if (at + 2 * AHEAD < count) {
        uint32_t hash;
        if (hash_of(self, PyList_GET_ITEM(keys, at + 2 * AHEAD), &hash)) {
            KERNEL_PREFETCH(&self->table[hash & self->mask]);
        }
    }
    if (at + AHEAD < count) {
        uint32_t hash;
        if (hash_of(self, PyList_GET_ITEM(keys, at + AHEAD), &hash)) {
            for (uint32_t step = 0; step < 2; step++) {
                uint32_t place = self->table[(hash + step) & self->mask];
                if (place == NO_ROW) {
                    break;
                }
                KERNEL_PREFETCH(&self->rows[place]);
            }
        }
    }
}

const Row *chains_latest(Rows *self, PyObject *object, int64_t last) {
    Key key;
    if (self->table == NULL || !packing_find_key(self, object, &key)) {
        PyErr_Clear(); /* nothing can be there of what is no key */
        return NULL;
    }
    if (last < self->base) {
        return NULL;
    }
    uint64_t behind = (uint64_t)last - (uint64_t)self->base;
    uint32_t first = *place_of(self, &key), before = search(self, first, behind > UINT32_MAX ? UINT32_MAX : (uint32_t)behind, NO_ROW, 0, NULL);
    uint32_t place = before == NO_ROW ? first : self->rows[before].older;
    return place == NO_ROW ? NULL : &self->rows[place];
}
