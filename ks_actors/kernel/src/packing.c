/* The memory of packed rows: how they lie in it, and what of it is given back. */

#include "packing.h"

#ifdef __SANITIZE_ADDRESS__ /* hardly a row shares a block with another one, and malloc watches over each block */
#define CHUNK ((size_t)64)
#else
#define CHUNK ((size_t)256 << 10) /* only the pages of it that are written to take memory */
#endif
#define LENGTH_BYTES 10
#define LONGEST ((size_t)PY_SSIZE_T_MAX / 4) /* of a key or value: sums of lengths fit, also where size_t has 32 bits */

/* --- data ------------------------------------------------------------------------------------------------------------------------- */

#ifdef __SANITIZE_ADDRESS__

static void *take_block(void *Py_UNUSED(context), size_t size) { return malloc(size); }

static void give_block(void *Py_UNUSED(context), void *block, size_t Py_UNUSED(size)) { free(block); }

static void get_allocator(PyObjectArenaAllocator *allocator) { *allocator = (PyObjectArenaAllocator){.alloc = take_block, .free = give_block}; }

#else

static void get_allocator(PyObjectArenaAllocator *allocator) { PyObject_GetArenaAllocator(allocator); }

#endif

/* Return room for some bytes behind some links, or NULL with MemoryError. */
static uint8_t *reserve(Rows *self, int links, size_t size) {
    Chunk *chunk = self->chunk;
    size_t front = (size_t)links * sizeof(uint32_t), room = chunk == NULL ? 0 : chunk->size - chunk->used;
    size_t gap = links == 0 || chunk == NULL ? 0 : ((size_t)0 - chunk->used) & (sizeof(uint32_t) - 1); /* links have to be aligned */
    if (chunk == NULL || gap > room || front > room - gap || size > room - gap - front) {
        PyObjectArenaAllocator allocator;
        get_allocator(&allocator);
        size_t whole = front + size > CHUNK - sizeof(Chunk) ? front + size + sizeof(Chunk) : CHUNK;
        chunk = allocator.alloc(allocator.ctx, whole);
        if (chunk == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        *chunk = (Chunk){.before = self->chunk, .allocator = allocator, .size = whole, .used = sizeof(Chunk)};
        self->chunk = chunk;
        gap = 0;
    }
    uint8_t *data = (uint8_t *)chunk + chunk->used + gap + front;
    chunk->used += gap + front + size;
    self->used += gap + front + size;
    return data;
}

/* Free a list of chunks. */
static void free_chunks(Chunk *chunk) {
    while (chunk != NULL) {
        Chunk *before = chunk->before;
        PyObjectArenaAllocator allocator = chunk->allocator;
        allocator.free(allocator.ctx, chunk, chunk->size);
        chunk = before;
    }
}

/* Give back the latest chunk. */
static void drop_chunk(Rows *self) {
    Chunk *chunk = self->chunk;
    self->chunk = chunk->before;
    self->used -= chunk->used - sizeof(Chunk);
    chunk->before = NULL;
    free_chunks(chunk);
}

static inline uint8_t *put_length(uint8_t *at, uint64_t length) {
    for (; length >= 0x80; length >>= 7) {
        *at++ = (uint8_t)(length | 0x80);
    }
    *at++ = (uint8_t)length;
    return at;
}

static inline const uint8_t *get_length(const uint8_t *at, uint64_t *length) {
    *length = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *at++;
        *length |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            return at;
        }
    }
}

/* Write what a row has behind room for its links: the key's length, with whether there is a time, that of the value and 1, or 0 without one; time,
   key, value. */
static uint8_t *write_data(Rows *self, int links, const Key *key, int64_t start, const Value *value, int64_t time) {
    uint8_t lengths[2 * LENGTH_BYTES], *end = put_length(lengths, (uint64_t)key->length << 1 | (time != start));
    size_t head = (size_t)(put_length(end, value->data == NULL ? 0 : (uint64_t)value->length + 1) - lengths), stamp = time == start ? 0 : sizeof(time);
    if (key->length > LONGEST || value->length > LONGEST) {
        PyErr_NoMemory();
        return NULL;
    }
    uint8_t *data = reserve(self, links, head + stamp + key->length + value->length), *at = data;
    if (data == NULL) {
        return NULL;
    }
    memcpy(at, lengths, head);
    memcpy(at += head, &time, stamp);
    memcpy(at += stamp, key->data, key->length);
    if (value->data != NULL) {
        memcpy(at + key->length, value->data, value->length);
    }
    return data;
}

/* Return how many links a row has in front of its data. */
static inline int links_of(const Rows *self, uint32_t place) {
    const Row *row = &self->rows[place];
    return row->chained ? chains_levels(row->hash, place) : 0;
}

/* Return how many bytes a row has, without its links. */
static size_t length_of(const Rows *self, uint32_t place) {
    Parts parts = packing_parts(self, &self->rows[place]);
    return (size_t)(parts.key - (const char *)self->rows[place].data) + parts.key_length + parts.value.length;
}

/* Move all rows into new chunks, in their order, and give the old ones back; without memory for that all stays as it is. */
static void compact(Rows *self) {
    Chunk *old = self->chunk;
    self->chunk = NULL;
    self->used = self->lost = 0;
    for (uint32_t place = 0; place < self->count; place++) {
        int links = links_of(self, place);
        size_t length = length_of(self, place), front = (size_t)links * sizeof(uint32_t);
        uint8_t *data = reserve(self, links, length);
        if (data == NULL) {
            PyErr_Clear();
            Chunk **end = &self->chunk;
            while (*end != NULL) {
                end = &(*end)->before;
            }
            *end = old;
            return;
        }
        memcpy(data - front, self->rows[place].data - front, front + length);
        self->rows[place].data = data;
    }
    free_chunks(old);
    self->scattered = 0;
}

/* Note that bytes are of no row any more. When they are most of what there is, they are given back. */
static void lose(Rows *self, size_t bytes) {
    self->lost += bytes;
    if (self->lost > CHUNK && self->lost > self->used / 2) {
        compact(self);
    }
}

Parts packing_parts(const Rows *self, const Row *row) {
    uint64_t key, value;
    const uint8_t *at = get_length(get_length(row->data, &key), &value);
    Parts parts = {.key_length = (size_t)(key >> 1), .time = packing_start(self, row)};
    if (key & 1) {
        memcpy(&parts.time, at, sizeof(parts.time));
        at += sizeof(parts.time);
    }
    parts.key = (const char *)at;
    if (value != 0) {
        parts.value = (Value){.data = parts.key + parts.key_length, .length = (size_t)value - 1};
    }
    return parts;
}

/* --- keys ------------------------------------------------------------------------------------------------------------------------- */

/* Return the bytes of a str or of bytes, whichever is wanted, or NULL with TypeError or UnicodeEncodeError. */
static const char *bytes_of(PyObject *object, int text, const char *what, size_t *length) {
    if (text ? !PyUnicode_Check(object) : !PyBytes_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s of these rows are %s, got %.80s", what, text ? "str" : "bytes", Py_TYPE(object)->tp_name);
        return NULL;
    }
    Py_ssize_t size = text ? 0 : PyBytes_GET_SIZE(object);
    const char *data = text ? PyUnicode_AsUTF8AndSize(object, &size) : PyBytes_AS_STRING(object);
    *length = (size_t)size;
    return data;
}

/* Tell whether what is to be put is of the very type: of another class it would come back as something else; or set TypeError. */
static int is_plain(PyObject *object, int text) {
    if (text ? PyUnicode_CheckExact(object) : PyBytes_CheckExact(object)) {
        return 1;
    }
    PyErr_Format(PyExc_TypeError, "%.80s is not put into these rows, %s is", Py_TYPE(object)->tp_name, text ? "str" : "bytes");
    return 0;
}

/* A class of its own may have another hash; what it stands for has that of its bytes. */
int packing_find_key(const Rows *self, PyObject *object, Key *key) {
    key->data = bytes_of(object, self->text, "keys", &key->length);
    key->hash = key->data == NULL ? 0 : (uint32_t)(self->text ? &PyUnicode_Type : &PyBytes_Type)->tp_hash(object);
    return key->data != NULL;
}

int packing_key(const Rows *self, PyObject *object, Key *key) { return is_plain(object, self->text) && packing_find_key(self, object, key); }

int packing_value(const Rows *self, PyObject *object, Value *value) {
    *value = (Value){.data = NULL, .length = 0};
    if (object != Py_None && is_plain(object, self->text_values)) {
        value->data = bytes_of(object, self->text_values, "values", &value->length);
    }
    return value->data != NULL || object == Py_None;
}

/* --- rows ------------------------------------------------------------------------------------------------------------------------- */

/* Make room for one more row. */
static int lengthen(Rows *self) {
    if (self->count < self->room) {
        return 1;
    }
    uint64_t room = (uint64_t)self->room + self->room / 4 + 16;
    Row *rows = room >= (uint64_t)NO_ROW || room > SIZE_MAX / sizeof(Row) ? NULL : PyMem_Realloc(self->rows, (size_t)room * sizeof(Row));
    if (rows == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    self->rows = rows;
    self->room = (uint32_t)room;
    return 1;
}

int packing_add(Rows *self, PyObject *object, int64_t start, int64_t sequence, PyObject *content, int64_t time) {
    Key key;
    Value value;
    if (start < self->base || (uint64_t)start - (uint64_t)self->base > UINT32_MAX || sequence < 0 || sequence > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a start or sequence number is out of range");
        return 0;
    }
    if (!packing_value(self, content, &value) || !packing_key(self, object, &key) || !lengthen(self) || !chains_widen(self)) {
        return 0;
    }
    uint32_t place = self->count;
    int links = value.data == NULL ? 0 : chains_levels(key.hash, place);
    uint8_t *data = write_data(self, links, &key, start, &value, time);
    if (data == NULL) {
        return 0;
    }
    self->count++;
    self->rows[place] = (Row){.data = data, .delta = (uint32_t)(start - self->base), .hash = key.hash, .older = NO_ROW, .sequence = (uint32_t)sequence};
    if (value.data != NULL) {
        chains_link(self, place, &key, links);
    }
    return 1;
}

/* Take away the data of all rows from `left` on, which lies behind that of all others. */
static void cut_data(Rows *self, const uint8_t *behind) {
    while ((uintptr_t)behind < (uintptr_t)self->chunk || (uintptr_t)behind >= (uintptr_t)self->chunk + self->chunk->size) {
        drop_chunk(self);
    }
    size_t used = (size_t)(behind - (const uint8_t *)self->chunk);
    self->used -= self->chunk->used - used;
    self->chunk->used = used;
}

void packing_cut(Rows *self, uint32_t left) {
    if (left >= self->count) {
        return;
    }
    const uint8_t *behind = self->rows[left].data - (size_t)links_of(self, left) * sizeof(uint32_t);
    size_t lost = 0;
    for (uint32_t place = self->count; place-- > left;) {
        if (self->scattered) {
            lost += length_of(self, place) + (size_t)links_of(self, place) * sizeof(uint32_t);
        }
        if (self->rows[place].chained) {
            chains_unlink(self, place);
        }
    }
    self->count = left;
    if (left == 0) {
        compact(self);
    } else if (self->scattered) {
        lose(self, lost);
    } else {
        cut_data(self, behind);
    }
}

int packing_replace(Rows *self, Row *row, PyObject *content, int64_t time) {
    Value value;
    if (!packing_value(self, content, &value)) {
        return 0;
    }
    uint32_t place = (uint32_t)(row - self->rows);
    int links = links_of(self, place);
    size_t front = (size_t)links * sizeof(uint32_t), lost = front + length_of(self, place);
    Parts parts = packing_parts(self, row);
    uint8_t *data = write_data(self, links, &(Key){.data = parts.key, .length = parts.key_length}, packing_start(self, row), &value, time);
    if (data == NULL) {
        return 0;
    }
    memcpy(data - front, row->data - front, front);
    self->scattered = 1;
    row->data = data;
    lose(self, lost);
    return 1;
}

void packing_free(Rows *self) {
    free_chunks(self->chunk);
    PyMem_Free(self->rows);
    PyMem_Free(self->table);
}
