/* Whole record batches (message format v2, KIP-98), as a broker sends them, to columns: those that nothing is special about, as many as follow each other. With
   many partitions most batches have a record or two, and a call for each would take longer than its records. */

#include "records.h"

#define HEADER 61        /* bytes in front of the records */
#define BEHIND_LENGTH 12 /* where the length begins to count */
#define LEAST_HEAD 23    /* a part of a batch that is no longer has nothing to check */
#define MAGIC 2
#define APPEND_TIME 0x08
#define CODEC 0x07
#define MOST_BYTES 65536 /* of several batches in one call: it must not take long */
#define MOST_BATCHES 256
#define MOST_GROWTH 50 /* bytes of memory per byte of records, at most */

typedef struct {
    int64_t base, first_time, highest_time;
    Py_ssize_t size, count;
    uint32_t sum;
    int32_t last_delta;
    uint16_t attributes;
    uint8_t magic;
} Head;

static inline uint64_t number_at(const uint8_t *at, int size) {
    uint64_t number = 0;
    for (int index = 0; index < size; index++) {
        number = number << 8 | at[index];
    }
    return number;
}

/* Read the header of a batch of which at least HEADER bytes are there. `size` is below 0 where the length is nonsense. */
static void read_head(const uint8_t *at, Head *head) {
    head->base = (int64_t)number_at(at, 8);
    head->size = (Py_ssize_t)(int32_t)number_at(at + 8, 4) + BEHIND_LENGTH;
    head->magic = at[16];
    head->sum = (uint32_t)number_at(at + 17, 4);
    head->attributes = (uint16_t)number_at(at + 21, 2);
    head->last_delta = (int32_t)number_at(at + 23, 4);
    head->first_time = (int64_t)number_at(at + 27, 8);
    head->highest_time = (int64_t)number_at(at + 35, 8);
    head->count = (Py_ssize_t)(int32_t)number_at(at + 57, 4);
}

/* Tell whether a batch is whole, has as many records as offsets, and no attributes but those of `plain`. */
static int is_plain(const uint8_t *at, Py_ssize_t left, const Head *head, int64_t plain) {
    return head->magic == MAGIC && head->size > HEADER && head->size <= left && !(head->attributes & ~(uint64_t)plain) && head->count > 0 &&
           head->count == (Py_ssize_t)head->last_delta + 1 && head->count <= (head->size - HEADER) / KERNEL_LEAST_RECORD &&
           head->base <= INT64_MAX - head->count && kernel_checksum(at + 21, (size_t)head->size - 21) == head->sum;
}

/* Read the records of `total` places in `batches` batches. Tell how many batches were read: fewer where records are malformed, -1 with an error set. */
static Py_ssize_t read_all(const uint8_t *at, Py_ssize_t batches, Py_ssize_t total, KernelColumns *columns) {
    Py_ssize_t index = 0;
    for (Py_ssize_t batch = 0; batch < batches; batch++) {
        Head head;
        read_head(at, &head);
        KernelCursor cursor = {at + HEADER, at + head.size};
        int append_time = (head.attributes & APPEND_TIME) != 0;
        for (Py_ssize_t end = index + head.count; index < end; index++) {
            if (!kernel_read_record(&cursor, columns, index, total, 0, append_time ? head.highest_time : head.first_time, append_time)) {
                if (!PyErr_ExceptionMatches(PyExc_ValueError)) {
                    return -1;
                }
                PyErr_Clear();
                return batch;
            }
        }
        at += head.size;
    }
    return batches;
}

/* Return the offsets of `batches` batches: those of each run without a gap as a pair, the first and the end. */
static PyObject *runs_of(const uint8_t *at, Py_ssize_t batches) {
    PyObject *runs = PyList_New(0);
    int64_t first = 0, end = 0;
    for (Py_ssize_t batch = 0; runs != NULL && batch <= batches; batch++) {
        Head head = {.base = INT64_MIN};
        if (batch < batches) {
            read_head(at, &head);
            at += head.size;
        }
        if (batch > 0 && head.base != end && !kernel_append(runs, Py_BuildValue("(LL)", (long long)first, (long long)end))) {
            Py_CLEAR(runs);
        }
        if (batch == 0 || head.base != end) {
            first = head.base;
        }
        end = head.base + (batch < batches ? head.count : 0);
    }
    return runs;
}

/* Return the result of `batches` plain batches with `total` records, or None where the records of the first one are malformed. */
static PyObject *columns_of(const uint8_t *data, Py_ssize_t begin, Py_ssize_t batches, Py_ssize_t total) {
    const uint8_t *first = data + begin;
    while (batches > 0) {
        KernelColumns columns;
        Py_ssize_t found = kernel_new_columns(&columns, total, 0) ? read_all(first, batches, total, &columns) : -1;
        PyObject *result = NULL;
        if (found == batches) {
            Py_ssize_t behind = begin;
            for (Py_ssize_t batch = 0; batch < batches; batch++) {
                Head head;
                read_head(data + behind, &head);
                behind += head.size;
            }
            PyObject *runs = runs_of(first, batches);
            if (runs != NULL) {
                result = Py_BuildValue("(nOOOON)", behind, columns.keys, columns.values, columns.timestamps,
                                       columns.headers == NULL ? Py_None : columns.headers, runs);
            }
        }
        kernel_drop_columns(&columns);
        if (found < 0 || found == batches) {
            return result;
        }
        /* Once more, without the malformed one: columns have no empty places. */
        total = 0;
        const uint8_t *at = first;
        for (Py_ssize_t batch = 0; batch < found; batch++) {
            Head head;
            read_head(at, &head);
            at += head.size;
            total += head.count;
        }
        batches = found;
    }
    Py_RETURN_NONE;
}

/* read_batches(data, at, end, position, most_records, plain_attributes, most_memory): see _kernel.pyi */
PyObject *kernel_read_batches(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("read_batches", nargs, 7)) {
        return NULL;
    }
    int64_t numbers[6];
    for (int index = 0; index < 6; index++) {
        numbers[index] = PyLong_AsLongLong(args[index + 1]);
        if (numbers[index] == -1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    int64_t begin = numbers[0], end = numbers[1], position = numbers[2], room = numbers[3] < 0 ? 0 : numbers[3], plain = numbers[4], memory = numbers[5];
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (begin < 0 || begin > view.len) {
        PyErr_SetString(PyExc_ValueError, "batches are asked for that are not in the data");
        goto done;
    }
    if (end > view.len) {
        end = view.len;
    }
    const uint8_t *data = view.buf;
    Py_ssize_t at = (Py_ssize_t)begin, batches = 0, total = 0, bytes = 0;
    while (at < end && view.len - at > HEADER && batches < MOST_BATCHES) {
        Head head;
        read_head(data + at, &head);
        if (head.base < position || head.count > room - total || (batches > 0 && head.size > MOST_BYTES - (at - (Py_ssize_t)begin)) ||
            !is_plain(data + at, view.len - at, &head, plain)) {
            break;
        }
        bytes += head.size - HEADER;
        if (bytes > memory / MOST_GROWTH) {
            break;
        }
        at += head.size;
        total += head.count;
        batches++;
        position = head.base + head.count;
    }
    result = columns_of(data, (Py_ssize_t)begin, batches, total);
done:
    PyBuffer_Release(&view);
    return result;
}

/* behind_batches(data): see _kernel.pyi */
PyObject *kernel_behind_batches(PyObject *Py_UNUSED(self), PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const uint8_t *bytes = view.buf;
    Py_ssize_t at = 0;
    int64_t behind = 0;
    int32_t epoch = -1;
    int plain = view.len > HEADER, packed = 0;
    while (plain && view.len - at >= HEADER) {
        Head head;
        read_head(bytes + at, &head);
        if (head.size > view.len - at) {
            break;
        }
        plain = head.magic >= MAGIC && head.size >= HEADER && head.last_delta >= 0 && head.base >= 0 &&
                head.base < INT64_MAX - head.last_delta;
        behind = plain ? head.base + head.last_delta + 1 : 0;
        epoch = (int32_t)number_at(bytes + at + BEHIND_LENGTH, 4);
        packed |= (head.attributes & CODEC) != 0;
        at += plain ? head.size : 0;
    }
    if (plain && view.len - at > LEAST_HEAD && view.len - at < HEADER) {
        /* Even a part of a batch has a length that makes sense. */
        plain = bytes[at + 16] >= MAGIC && (int32_t)number_at(bytes + at + 8, 4) >= HEADER - BEHIND_LENGTH;
    }
    PyBuffer_Release(&view);
    if (!plain || at == 0) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(LiN)", (long long)behind, (int)epoch, PyBool_FromLong(packed));
}
