/* The order in which restored rows are written: that of their keys' bytes, which a database takes far faster than any other. It is made bit by bit. */

#include "restored.h"

#define FEW 24

void restored_disarrange(Restored *self) {
    PyMem_Free(self->order.places);
    self->order = (Order){.places = NULL};
}

static uint64_t head_of(const Restored *self, const Entry *entry) {
    uint64_t head = 0;
    for (size_t at = self->shared_length; at < self->shared_length + sizeof(head); at++) {
        head = head << 8 | (at < entry->key_length ? (uint8_t)entry->data[at] : 0);
    }
    return head;
}

int restored_arrange(Restored *self, size_t count) {
    Order *order = &self->order;
    if (order->places == NULL && self->count > 0) {
        order->places = PyMem_Calloc(self->count, sizeof(Place));
        if (order->places == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        order->room = self->count;
    }
    for (; count > 0 && order->count < order->room; count--, order->slot++) {
        const Slot *slot = &self->slots[order->slot];
        if (order->slot + KERNEL_AHEAD <= self->mask && slot[KERNEL_AHEAD].entry != NULL) {
            KERNEL_PREFETCH(slot[KERNEL_AHEAD].entry);
        }
        if (slot->entry != NULL) {
            order->places[order->count++] = (Place){.head = head_of(self, slot->entry), .entry = slot->entry, .hash = slot->hash};
        }
    }
    return order->count == order->room;
}

static inline int before(const Place *one, const Place *other) {
    if (one->head != other->head) {
        return one->head < other->head;
    }
    const Entry *first = one->entry, *second = other->entry;
    int compared = memcmp(first->data, second->data, first->key_length < second->key_length ? first->key_length : second->key_length);
    return compared != 0 ? compared < 0 : first->key_length < second->key_length;
}

static inline void swap(Place *one, Place *other) {
    Place held = *one;
    *one = *other;
    *other = held;
}

static void sort_few(Place *places, size_t begin, size_t end) {
    for (size_t index = begin + 1; index < end; index++) {
        Place held = places[index];
        size_t at = index;
        for (; at > begin && before(&held, &places[at - 1]); at--) {
            places[at] = places[at - 1];
        }
        places[at] = held;
    }
}

/* Put the middle one of some places where it belongs, those that come before it in front; return where that is. */
static size_t part(Place *places, size_t begin, size_t end) {
    size_t last = end - 1, at = begin;
    swap(&places[begin + (end - begin) / 2], &places[last]); /* the order is that of hashes, so any is as good as any other */
    for (size_t index = begin; index < last; index++) {
        if (before(&places[index], &places[last])) {
            swap(&places[index], &places[at++]);
        }
    }
    swap(&places[at], &places[last]);
    return at;
}

static int compare(const void *one, const void *other) { return before(one, other) ? -1 : before(other, one); }

/* Sort as many as are needed for the first place that is not sorted yet to be so. */
static void sort_on(Order *order) {
    for (;;) {
        size_t end = order->depth > 0 ? order->pivots[order->depth - 1] : order->count;
        if (end - order->sorted <= FEW || order->depth == PIVOTS_MOST) {
            if (end - order->sorted <= FEW) {
                sort_few(order->places, order->sorted, end);
            } else { /* as unlikely as the same side of a coin that often */
                qsort(order->places + order->sorted, end - order->sorted, sizeof(Place), compare);
            }
            order->sorted = end;
            if (order->depth > 0) {
                order->depth--;
                order->sorted++;
            }
            return;
        }
        order->pivots[order->depth++] = part(order->places, order->sorted, end);
    }
}

const Place *restored_next(Restored *self, size_t index) {
    Order *order = &self->order;
    size_t wanted = order->next + index;
    if (wanted >= order->count) {
        return NULL;
    }
    while (order->sorted <= wanted) {
        sort_on(order);
    }
    if (wanted + KERNEL_AHEAD < order->count) { /* not sorted yet, maybe, but hardly far from there */
        KERNEL_PREFETCH(order->places[wanted + KERNEL_AHEAD].entry);
    }
    return &order->places[wanted];
}
