/* CRC-32C (Castagnoli), the checksum of a record batch: by the processor's own instruction where it has one, else eight bytes at a time by tables. */

#include "kernel.h"

/* A table has for each byte what it adds to the checksum; the polynomial is 0x82f63b78, lowest bit first. The sum of two bytes has the sum of what they
   have, so what the eight bits have is enough to say. Nothing is computed when the kernel is loaded: several interpreters may load it at once. */
#define BYTE(n, a, b, c, d, e, f, g, h) \
    (((n) & 1 ? a : 0) ^ ((n) & 2 ? b : 0) ^ ((n) & 4 ? c : 0) ^ ((n) & 8 ? d : 0) ^ ((n) & 16 ? e : 0) ^ ((n) & 32 ? f : 0) ^ ((n) & 64 ? g : 0) ^ \
     ((n) & 128 ? h : 0))
#define BYTES_4(n, a, b, c, d, e, f, g, h) \
    BYTE(n, a, b, c, d, e, f, g, h), BYTE(n + 1, a, b, c, d, e, f, g, h), BYTE(n + 2, a, b, c, d, e, f, g, h), BYTE(n + 3, a, b, c, d, e, f, g, h)
#define BYTES_16(n, a, b, c, d, e, f, g, h) \
    BYTES_4(n, a, b, c, d, e, f, g, h), BYTES_4(n + 4, a, b, c, d, e, f, g, h), BYTES_4(n + 8, a, b, c, d, e, f, g, h), \
        BYTES_4(n + 12, a, b, c, d, e, f, g, h)
#define BYTES_64(n, a, b, c, d, e, f, g, h) \
    BYTES_16(n, a, b, c, d, e, f, g, h), BYTES_16(n + 16, a, b, c, d, e, f, g, h), BYTES_16(n + 32, a, b, c, d, e, f, g, h), \
        BYTES_16(n + 48, a, b, c, d, e, f, g, h)
#define TABLE(a, b, c, d, e, f, g, h) \
    {BYTES_64(0, a, b, c, d, e, f, g, h), BYTES_64(64, a, b, c, d, e, f, g, h), BYTES_64(128, a, b, c, d, e, f, g, h), \
     BYTES_64(192, a, b, c, d, e, f, g, h)}

/* The first table is for a byte at the end, each other one for a byte that is one further away from it. */
static const uint32_t tables[8][256] = {
    TABLE(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78),
    TABLE(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
    TABLE(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
    TABLE(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
    TABLE(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c),
    TABLE(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6),
    TABLE(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4),
    TABLE(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664),
};

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

uint32_t kernel_checksum(const uint8_t *at, size_t size) { return ~(has_instruction() ? by_instruction : by_tables)(0xffffffffu, at, size); }

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
    uint32_t crc = by_hand ? ~by_tables(0xffffffffu, view.buf, (size_t)view.len) : kernel_checksum(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}
