/* The memory of packed rows: how they lie in it, and how they are found. */

#include "packing.h"

#define CHUNK ((size_t)256 << 10) /* only the pages of it that are written to take memory */
#define LENGTH_BYTES 10

/* --- data ------------------------------------------------------------------------------------------------------------------------- */

/* Return room for some bytes, or NULL with MemoryError. */
static uint8_t *reserve(Rows *self, size_t size) {
    Chunk *chunk = self->chunk;
    if (chunk == NULL || size > chunk->size - chunk->used) {
        PyObjectArenaAllocator allocator;
        PyObject_GetArenaAllocator(&allocator);
        size_t whole = size > CHUNK - sizeof(Chunk) ? size + sizeof(Chunk) : CHUNK;
        chunk = allocator.alloc(allocator.ctx, whole);
        if (chunk == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        *chunk = (Chunk){.before = self->chunk, .allocator = allocator, .size = whole, .used = sizeof(Chunk)};
        self->chunk = chunk;
    }
    uint8_t *room = (uint8_t *)chunk + chunk->used;
    chunk->used += size;
    return room;
}

static void free_chunk(Rows *self) {
    Chunk *chunk = self->chunk;
    self->chunk = chunk->before;
    PyObjectArenaAllocator allocator = chunk->allocator;
    allocator.free(allocator.ctx, chunk, chunk->size);
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

/* Write what a row has: the key's length, with whether there is a time, that of the value and 1, or 0 without one; time, key, value. */
static const uint8_t *write_data(Rows *self, const Key *key, int64_t start, const Value *value, int64_t time) {
    uint8_t lengths[2 * LENGTH_BYTES], *end = put_length(lengths, (uint64_t)key->length << 1 | (time != start));
    size_t head = (size_t)(put_length(end, value->data == NULL ? 0 : (uint64_t)value->length + 1) - lengths), stamp = time == start ? 0 : sizeof(time);
    uint8_t *data = reserve(self, head + stamp + key->length + value->length), *at = data;
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

/* Look at a key that is looked for. A class of its own may have another hash; what it stands for has that of its bytes. */
static int find_key(const Rows *self, PyObject *object, Key *key) {
    key->data = bytes_of(object, self->text, "keys", &key->length);
    key->hash = key->data == NULL ? 0 : (uint32_t)(self->text ? &PyUnicode_Type : &PyBytes_Type)->tp_hash(object);
    return key->data != NULL;
}

int packing_key(const Rows *self, PyObject *object, Key *key) { return is_plain(object, self->text) && find_key(self, object, key); }

int packing_value(const Rows *self, PyObject *object, Value *value) {
    *value = (Value){.data = NULL, .length = 0};
    if (object != Py_None && is_plain(object, self->text_values)) {
        value->data = bytes_of(object, self->text_values, "values", &value->length);
    }
    return value->data != NULL || object == Py_None;
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

/* Make room in the table for one more key. */
static int widen(Rows *self) {
    uint64_t size = self->table == NULL ? 0 : (uint64_t)self->mask + 1, wider = size == 0 ? 8 : 2 * size;
    if (3 * ((uint64_t)self->keys + 1) <= 2 * size) {
        return 1;
    }
    uint32_t *table = wider > (uint64_t)NO_ROW ? NULL : PyMem_New(uint32_t, wider);
    if (table == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    memset(table, 0xff, wider * sizeof(*table));
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

/* Put a row into the chain of its key; the table has room. */
static void chain(Rows *self, uint32_t place, const Key *key) {
    Row *row = &self->rows[place];
    uint32_t *link = place_of(self, key);
    self->keys += *link == NO_ROW;
    while (*link != NO_ROW && self->rows[*link].delta > row->delta) {
        link = &self->rows[*link].older;
    }
    row->older = *link;
    *link = place;
}

/* --- rows ------------------------------------------------------------------------------------------------------------------------- */

/* Make room for one more row. */
static int lengthen(Rows *self) {
    if (self->count < self->room) {
        return 1;
    }
    uint64_t room = (uint64_t)self->room + self->room / 4 + 16;
    Row *rows = room >= (uint64_t)NO_ROW ? NULL : PyMem_Realloc(self->rows, room * sizeof(Row));
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
    if (!packing_value(self, content, &value) || !packing_key(self, object, &key) || !lengthen(self) || !widen(self)) {
        return 0;
    }
    const uint8_t *data = write_data(self, &key, start, &value, time);
    if (data == NULL) {
        return 0;
    }
    uint32_t place = self->count++;
    self->rows[place] = (Row){.data = data, .delta = (uint32_t)(start - self->base), .hash = key.hash, .older = NO_ROW, .sequence = (int32_t)sequence};
    if (value.data != NULL) {
        chain(self, place, &key);
    }
    return 1;
}

void packing_cut(Rows *self, uint32_t left) {
    if (left >= self->count) {
        return;
    }
    const uint8_t *behind = self->rows[left].data;
    while (!self->scattered && (behind < (uint8_t *)self->chunk || behind >= (uint8_t *)self->chunk + self->chunk->size)) {
        free_chunk(self);
    }
    if (!self->scattered) {
        self->chunk->used = (size_t)(behind - (uint8_t *)self->chunk);
    }
    self->count = left;
    self->keys = 0;
    memset(self->table, 0xff, ((size_t)self->mask + 1) * sizeof(*self->table));
    for (uint32_t place = 0; place < left; place++) {
        Parts parts = packing_parts(self, &self->rows[place]);
        if (parts.value.data != NULL) {
            chain(self, place, &(Key){.data = parts.key, .length = parts.key_length, .hash = self->rows[place].hash});
        }
    }
}

const Row *packing_latest(const Rows *self, PyObject *object, int64_t last) {
    Key key;
    if (self->table == NULL || !find_key(self, object, &key)) {
        PyErr_Clear(); /* nothing can be there of what is no key */
        return NULL;
    }
    uint32_t place = *place_of(self, &key);
    while (place != NO_ROW && packing_start(self, &self->rows[place]) > last) {
        place = self->rows[place].older;
    }
    return place == NO_ROW ? NULL : &self->rows[place];
}

int packing_replace(Rows *self, Row *row, PyObject *content, int64_t time) {
    Value value;
    if (!packing_value(self, content, &value)) {
        return 0;
    }
    Parts parts = packing_parts(self, row);
    const uint8_t *data = write_data(self, &(Key){.data = parts.key, .length = parts.key_length}, packing_start(self, row), &value, time);
    if (data == NULL) {
        return 0;
    }
    self->scattered = 1;
    row->data = data;
    return 1;
}

void packing_free(Rows *self) {
    while (self->chunk != NULL) {
        free_chunk(self);
    }
    PyMem_Free(self->rows);
    PyMem_Free(self->table);
}
