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
} KernelColumns;

#define KERNEL_LEAST_RECORD 7 /* bytes of the shortest record */

/* Make columns of `count` empty places; tell whether that was possible. `kernel_drop_columns` lets go of them in any case. */
int kernel_new_columns(KernelColumns *columns, Py_ssize_t count, int with_offsets);
void kernel_drop_columns(KernelColumns *columns);

/* Read the next record to place `index` of `count`, and move on; tell whether that was possible, or set ValueError or MemoryError. */
int kernel_read_record(KernelCursor *all, KernelColumns *columns, Py_ssize_t index, Py_ssize_t count, int64_t base_offset, int64_t base_time, int append_time);

#endif
