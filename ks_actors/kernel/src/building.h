/* Records of a record batch (message format v2, KIP-98) as they are written: memory that grows, and numbers of few bytes. */

#ifndef KS_ACTORS_BUILDING_H
#define KS_ACTORS_BUILDING_H

#include "kernel.h"

typedef struct {
    uint8_t *bytes;
    Py_ssize_t used, room;
} Buffer;

/* What the numbers of a record take at most: its length, attributes, two deltas, two lengths and the number of headers. */
#define NUMBERS 60

/* Have room for some more bytes. Lengths are added up as int64: where Py_ssize_t has 32 bits, one large object that a record names twice is too much. */
static inline int grow(Buffer *buffer, int64_t more) {
    if (more > PY_SSIZE_T_MAX / 2 - buffer->used) {
        PyErr_NoMemory();
        return 0;
    }
    Py_ssize_t room = buffer->used + (Py_ssize_t)more;
    if (room <= buffer->room) {
        return 1;
    }
    room = room < 2 * buffer->room ? 2 * buffer->room : room;
    uint8_t *bytes = PyMem_Realloc(buffer->bytes, (size_t)room);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    buffer->bytes = bytes;
    buffer->room = room;
    return 1;
}

static inline Py_ssize_t varint_size(int64_t value) {
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    Py_ssize_t size = 1;
    while (raw >= 0x80) {
        raw >>= 7;
        size++;
    }
    return size;
}

static inline void put_varint(Buffer *buffer, int64_t value) {
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    uint8_t *at = buffer->bytes + buffer->used;
    while (raw >= 0x80) {
        *at++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *at++ = (uint8_t)raw;
    buffer->used = at - buffer->bytes;
}

static inline void put_data(Buffer *buffer, const char *data, size_t length) {
    memcpy(buffer->bytes + buffer->used, data, length);
    buffer->used += (Py_ssize_t)length;
}

/* Write one record without headers, whose key may have some more bytes behind it; the length of a missing value is negative. Return what is to be written
   of the key, for `suffix` bytes; NULL when it does not fit into `limit`, or with an error. */
static inline uint8_t *put_content(Buffer *buffer, int64_t limit, int64_t index, int64_t delta, const char *key, int64_t length, int suffix, const char *value,
                                   int64_t value_length) {
    int64_t content = value_length < 0 ? 0 : value_length;
    int64_t size = 1 + varint_size(delta) + varint_size(index) + varint_size(length + suffix) + length + suffix + varint_size(value_length) + content + 1;
    if (varint_size(size) + size > limit - buffer->used || !grow(buffer, size + NUMBERS)) {
        return NULL;
    }
    put_varint(buffer, size);
    buffer->bytes[buffer->used++] = 0;
    put_varint(buffer, delta);
    put_varint(buffer, index);
    put_varint(buffer, length + suffix);
    put_data(buffer, key, (size_t)length);
    uint8_t *behind = buffer->bytes + buffer->used;
    buffer->used += suffix;
    put_varint(buffer, value_length);
    if (content > 0) {
        put_data(buffer, value, (size_t)content);
    }
    put_varint(buffer, 0);
    return behind;
}

#endif
