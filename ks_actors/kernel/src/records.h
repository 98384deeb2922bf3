/* Records of a batch to columns: what records.c has for batches.c. */

#ifndef KS_ACTORS_RECORDS_H
#define KS_ACTORS_RECORDS_H

#include "kernel.h"

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} KernelCursor;

typedef struct {
    PyObject *keys, *values, *timestamps, *offsets, *headers; /* `offsets` and `headers` may be NULL */
    int texts;                                                /* which of them become texts: keys (1), values (2) */
    int64_t time;                                             /* the last one */
} KernelColumns;

static inline int kernel_corrupt(const char *what) {
    PyErr_Format(PyExc_ValueError, "%s", what);
    return 0;
}

static inline int kernel_read_varint(KernelCursor *cursor, int64_t *value) {
    const uint8_t *at = cursor->at;
    uint64_t raw = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (at >= cursor->end) {
            return kernel_corrupt("a record ends in the middle of a number");
        }
        uint8_t byte = *at++;
        raw |= (uint64_t)(byte & 0x7f) << (shift & 63);
        if (!(byte & 0x80)) {
            cursor->at = at;
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return 1;
        }
    }
    return kernel_corrupt("a number of a record has more than ten bytes");
}

/* Set the cursor of one record behind its length, and `next` behind the record. */
static inline int kernel_enter_record(const KernelCursor *all, KernelCursor *record, const uint8_t **next) {
    int64_t length;
    *record = *all;
    if (!kernel_read_varint(record, &length)) {
        return 0;
    }
    if (length <= 0 || length > record->end - record->at) {
        return kernel_corrupt("a record is longer than its batch");
    }
    *next = record->end = record->at + length;
    return 1;
}

#define KERNEL_LEAST_RECORD 7 /* bytes of the shortest record */

/* Make columns of `count` empty places; tell whether that was possible. `kernel_drop_columns` lets go of them in any case. */
int kernel_new_columns(KernelColumns *columns, Py_ssize_t count, int with_offsets);
void kernel_drop_columns(KernelColumns *columns);

/* Read the next record to place `index` of `count`, and move on; tell whether that was possible, or set ValueError or MemoryError. */
int kernel_read_record(KernelCursor *all, KernelColumns *columns, Py_ssize_t index, Py_ssize_t count, int64_t base_offset, int64_t base_time, int append_time);

#endif
