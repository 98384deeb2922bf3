/* Rows of a window store with duplicates, packed: keys and values are bytes in chunks of memory, and become objects when they are asked for.

   The rows of a key are a chain, the latest first, those of one start the last one first. What comes late is put into its place. The chain is a skip
   list: of 16 rows one, on average, links to rows further down as well, so that no search goes past many. */

#ifndef KS_ACTORS_PACKING_H
#define KS_ACTORS_PACKING_H

#include "kernel.h"

#define NO_ROW UINT32_MAX

typedef struct Chunk {
    struct Chunk *before;
    PyObjectArenaAllocator allocator;
    size_t size, used; /* both with this head */
} Chunk;

typedef struct {
    uint8_t *data;  /* as `write_data` has it; in front of it are the links of the row to rows further down its chain, that of level 1 last */
    uint32_t delta; /* start, from the base on */
    uint32_t hash, older;
    uint32_t sequence : 31, chained : 1; /* whether it is found by its key: it had a value when it was added */
} Row;

typedef struct {
    PyObject_HEAD
    int64_t base;
    int text, text_values; /* whether keys, and values, are str; else they are bytes */
    Row *rows;
    uint32_t count, room;
    uint32_t *table; /* the latest row of each key, by hash */
    uint32_t mask, keys;
    Chunk *chunk;
    size_t used, lost; /* bytes in chunks, and how many of them are of no row any more */
    int scattered;     /* whether data of a row may lie behind that of a later one */
    uint64_t steps;    /* links that were followed, or tried: how much work it was to find rows */
} Rows;

typedef struct {
    const char *data;
    size_t length;
    uint32_t hash;
} Key;

typedef struct {
    const char *data; /* none: NULL */
    size_t length;
} Value;

typedef struct {
    const char *key;
    size_t key_length;
    Value value;
    int64_t time;
} Parts;

/* Tell apart what a row has. */
Parts packing_parts(const Rows *self, const Row *row);

/* Look at a key; return whether it is one, or set TypeError or UnicodeEncodeError. The object is to be held on to. */
int packing_key(const Rows *self, PyObject *object, Key *key);

/* Look at a value, None too; return whether it is one, or set TypeError or UnicodeEncodeError. */
int packing_value(const Rows *self, PyObject *object, Value *value);

/* Add a row; return whether that was possible, or set an error. */
int packing_add(Rows *self, PyObject *key, int64_t start, int64_t sequence, PyObject *value, int64_t time);

/* Put another value and time into the place of those of a row; return whether that was possible, or set an error. */
int packing_replace(Rows *self, Row *row, PyObject *value, int64_t time);

/* Take out all rows from `left` on. */
void packing_cut(Rows *self, uint32_t left);

/* Do for rows `from` to before `to` what `write_records` does. */
PyObject *packing_write(const Rows *rows, uint32_t from, uint32_t to, Py_ssize_t limit, Py_ssize_t header);

/* Let go of all memory. */
void packing_free(Rows *self);

/* Look at a key that is looked for, of a class of its own too; return whether it is one, or set TypeError or UnicodeEncodeError. */
int packing_find_key(const Rows *self, PyObject *object, Key *key);

/* chains.c */

/* Make room in the table for one more key; return whether there is, or set MemoryError. */
int chains_widen(Rows *self);

/* Put a row with so many links into the chain of its key; the table has room. */
void chains_link(Rows *self, uint32_t place, const Key *key, int levels);

/* Take a row out of the chain of its key. */
void chains_unlink(Rows *self, uint32_t place);

/* Return the latest row of a key that starts at `last` or before; NULL when there is none, or what was asked for is no key. */
const Row *chains_latest(Rows *self, PyObject *key, int64_t last);

/* Prepare the search for keys that come soon after key number `at` of a list. */
void chains_ahead(const Rows *self, PyObject *keys, Py_ssize_t at);

/* Return how many links a row at a place has besides `older`: by chance, as far as anybody can tell who does not know the secret of hashes. */
int chains_levels(uint32_t hash, uint32_t place);

static inline int64_t packing_start(const Rows *self, const Row *row) { return self->base + row->delta; }

static inline const Row *packing_older(const Rows *self, const Row *row) { return row->older == NO_ROW ? NULL : &self->rows[row->older]; }

#endif
