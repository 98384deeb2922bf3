/* Rows of a window store with duplicates, packed: keys and values are bytes in chunks of memory, and become objects when they are asked for.

   The rows of a key are a chain, the latest first, those of one start the last one first. What comes late is put into its place. */

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
    const uint8_t *data; /* as `write_data` has it */
    uint32_t delta;      /* start, from the base on */
    uint32_t hash, older;
    int32_t sequence;
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
    int scattered; /* whether data of a row may lie behind that of a later one */
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

/* Return the latest row of a key that starts at `last` or before; NULL when there is none, or what was asked for is no key. */
const Row *packing_latest(const Rows *self, PyObject *key, int64_t last);

static inline int64_t packing_start(const Rows *self, const Row *row) { return self->base + row->delta; }

static inline const Row *packing_older(const Rows *self, const Row *row) { return row->older == NO_ROW ? NULL : &self->rows[row->older]; }

#endif
