/* CRC-32C (Castagnoli), the checksum of a record batch: by the processor's own instruction where it has one, else eight bytes at a time by tables. */

#include "kernel.h"

#include <string.h>

#define POLYNOMIAL 0x82f63b78u

static uint32_t tables[8][256];

static void fill_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) {
            value = value & 1 ? value >> 1 ^ POLYNOMIAL : value >> 1;
        }
        tables[0][byte] = value;
    }
    for (int distance = 1; distance < 8; distance++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t value = tables[distance - 1][byte];
            tables[distance][byte] = value >> 8 ^ tables[0][value & 0xff];
        }
    }
}

static uint32_t by_tables(uint32_t crc, const uint8_t *at, size_t left) {
    for (; left >= 8; left -= 8, at += 8) {
        crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = tables[7][crc & 0xff] ^ tables[6][crc >> 8 & 0xff] ^ tables[5][crc >> 16 & 0xff] ^ tables[4][crc >> 24] ^ tables[3][at[4]] ^
              tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
    }
    for (; left > 0; left--, at++) {
        crc = crc >> 8 ^ tables[0][(crc ^ *at) & 0xff];
    }
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)

/* Clang has the instruction as a feature of its own, which gcc before 12 does not know. */
#ifdef __clang__
#define WITH_CRC32 "crc32"
#else
#define WITH_CRC32 "sse4.2"
#endif

__attribute__((target(WITH_CRC32))) static uint32_t by_instruction(uint32_t crc, const uint8_t *at, size_t left) {
    uint64_t wide = crc;
    for (; left >= 8; left -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; left > 0; left--, at++) {
        crc = __builtin_ia32_crc32qi(crc, *at);
    }
    return crc;
}

static int has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }

#else

#define by_instruction by_tables

static int has_instruction(void) { return 0; }

#endif

/* crc32c(data, by_hand): see _kernel.pyi */
PyObject *kernel_crc32c(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 1 && !kernel_has("crc32c", nargs, 2)) {
        return NULL;
    }
    int by_hand = nargs == 2 ? PyObject_IsTrue(args[1]) : 0;
    Py_buffer view;
    if (by_hand < 0 || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    uint32_t (*run)(uint32_t, const uint8_t *, size_t) = by_instruction;
    if (by_hand || !has_instruction()) {
        run = by_tables;
    }
    uint32_t crc = ~run(0xffffffffu, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

/* To be called once, before anything else here. */
void kernel_prepare_checksums(void) { fill_tables(); }
