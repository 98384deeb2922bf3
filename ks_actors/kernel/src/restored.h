/* Rows of a changelog that were restored, and wait to be written or asked for: the last one of each key, as bytes in memory of their own. */

#ifndef KS_ACTORS_RESTORED_H
#define KS_ACTORS_RESTORED_H

#include "kernel.h"

#define DELETED UINT32_MAX

typedef struct {
    uint32_t key_length, length, room; /* of the entry, or DELETED; and for how long a one there is room */
    char data[];                       /* key, entry */
} Entry;

typedef struct {
    Py_hash_t hash;
    Entry *entry; /* NULL: the slot is free */
} Slot;

typedef struct {
    uint64_t head; /* the first bytes of the key that not all have */
    Entry *entry;
    Py_hash_t hash;
} Place;

#define SHARED_MOST 64
#define PIVOTS_MOST 96

/* Places in the order of keys, as far as it is known: those before `sorted` are where they belong, and so are those that `pivots` says, the last one
   first; between two of these are those that belong there. */
typedef struct {
    Place *places;
    size_t count, room, slot; /* `slot`: how many slots have been looked at */
    size_t next, sorted;
    size_t pivots[PIVOTS_MOST];
    int depth;
} Order;

typedef struct {
    PyObject_HEAD
    Slot *slots; /* a power of two of them, or none */
    size_t mask, count;
    char shared[SHARED_MOST]; /* what all keys begin with, as far as it is looked at */
    size_t shared_length;
    Order order;
} Restored;

/* Return the slot of a key, or the free one where it belongs. There have to be slots. */
Slot *restored_slot(const Restored *self, const char *key, size_t length, Py_hash_t hash);

/* Free a slot that is taken. */
void restored_remove(Restored *self, Slot *slot);

/* Have an order of all that there is in the making, `count` slots at a time; return 1 when it is whole, 0 when there is more, -1 with MemoryError. */
int restored_arrange(Restored *self, size_t count);

/* Return the place behind the last one that was asked for, NULL at the end. The order has to be whole. */
const Place *restored_next(Restored *self, size_t index);

/* Forget the order. */
void restored_disarrange(Restored *self);

#endif
