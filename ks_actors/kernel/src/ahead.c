/* Looking ahead: what many keys have in dicts is brought into the processor's cache side by side.

   A key that was not looked for lately is several places in memory away, each known by the one before it: its place in the index, its entry, the key
   there, what it has. One lookup after the other waits for each of them, and that takes most of the time of counting. Here, the first places of all are
   asked for before the second ones are read, and so on. Nothing is changed, and no lookup depends on it: those that follow are only faster.

   This is the only file that knows how a dict lies in memory. Python's own headers tell it, for one version each, and promise nothing for the next one.
   So it is done on versions only that the tests have passed on, with those headers, and with a GIL; KERNEL_WITHOUT_AHEAD leaves it out everywhere. */

#include <patchlevel.h>

#if !defined(KERNEL_WITHOUT_AHEAD) && PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030F0000 && defined(__has_include)
#if __has_include(<internal/pycore_dict.h>)
#define Py_BUILD_CORE_MODULE
#endif
#endif

#include "kernel.h"

#if defined(Py_BUILD_CORE_MODULE) && !defined(Py_GIL_DISABLED)

#ifdef __GNUC__ /* Python's own headers have warnings that are theirs */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <internal/pycore_dict.h>
#pragma GCC diagnostic pop
#else
#include <internal/pycore_dict.h>
#endif

#define ROUNDS 3 /* places of the index that are tried for a key: it is further away in one of many cases */
#define PERTURB_SHIFT 5 /* as in dictobject.c */

typedef struct {
    const PyDictKeysObject *table;
    size_t place, rest; /* in the index, and what the next place is made of */
    Py_hash_t hash;
    const void *entry;
    PyObject *key, *value;
} Probe;

static inline const char *place_of(const Probe *probe) {
    return probe->table->dk_indices + (probe->place << (probe->table->dk_log2_index_bytes - probe->table->dk_log2_size));
}

/* Return the number of the entry at a place of the index, below 0 where there is none. */
static inline int64_t number_at(const Probe *probe) {
    const char *place = place_of(probe);
    switch (probe->table->dk_log2_index_bytes - probe->table->dk_log2_size) {
    case 0:
        return *(const int8_t *)place;
    case 1:
        return *(const int16_t *)place;
    case 2:
        return *(const int32_t *)place;
    default:
        return *(const int64_t *)place;
    }
}

/* Go on to the next place of a key. */
static inline void advance(Probe *probe) {
    probe->rest >>= PERTURB_SHIFT;
    probe->place = (probe->place * 5 + probe->rest + 1) & (((size_t)1 << probe->table->dk_log2_size) - 1);
}

static inline int begin(Probe *probe, const KernelSought *sought) {
    const PyDictObject *dict = (const PyDictObject *)sought->dict;
    *probe = (Probe){.table = dict->ma_keys, .hash = sought->hash, .rest = (size_t)sought->hash};
    probe->place = probe->rest & (((size_t)1 << probe->table->dk_log2_size) - 1);
    return dict->ma_values == NULL && dict->ma_used > 0;
}

/* Ask for the entry at the place of a probe; tell whether to go on: there is an entry, or was one once. */
static inline int ask_for_entry(Probe *probe) {
    int64_t number = number_at(probe);
    if (number >= 0) {
        const char *entries = probe->table->dk_indices + ((size_t)1 << probe->table->dk_log2_index_bytes);
        size_t size = probe->table->dk_kind == DICT_KEYS_GENERAL ? sizeof(PyDictKeyEntry) : sizeof(PyDictUnicodeEntry);
        probe->entry = entries + (size_t)number * size;
        KERNEL_PREFETCH(probe->entry);
    } else {
        probe->entry = NULL;
    }
    return number != DKIX_EMPTY;
}

/* Ask for the key and the value of an entry that may be the one. */
static inline void ask_for_parts(Probe *probe) {
    probe->key = probe->value = NULL;
    if (probe->entry == NULL) {
        return;
    }
    if (probe->table->dk_kind != DICT_KEYS_GENERAL) {
        const PyDictUnicodeEntry *entry = probe->entry;
        probe->key = entry->me_key;
        probe->value = entry->me_value;
    } else if (((const PyDictKeyEntry *)probe->entry)->me_hash == probe->hash) {
        const PyDictKeyEntry *entry = probe->entry;
        probe->key = entry->me_key;
        probe->value = entry->me_value;
    }
    if (probe->key != NULL) {
        KERNEL_PREFETCH(probe->key);
        KERNEL_PREFETCH(probe->value);
    }
}

/* Tell whether a probe has come to its key, as far as hashes say so. */
static inline int is_found(const Probe *probe) {
    return probe->key != NULL && (probe->table->dk_kind == DICT_KEYS_GENERAL || ((PyASCIIObject *)probe->key)->hash == probe->hash);
}

/* Try one place of the index for each probe; return how many have to try the next one. Those that are found are put into `found`. */
static int try_places(Probe *probes, int count, Probe *found, int *all) {
    int entered = 0, left = 0;
    for (int each = 0; each < count; each++) {
        KERNEL_PREFETCH(place_of(&probes[each]));
    }
    for (int each = 0; each < count; each++) {
        if (ask_for_entry(&probes[each])) {
            probes[entered++] = probes[each];
        }
    }
    for (int each = 0; each < entered; each++) {
        ask_for_parts(&probes[each]);
    }
    for (int each = 0; each < entered; each++) {
        if (is_found(&probes[each])) {
            found[(*all)++] = probes[each];
        } else {
            advance(&probes[each]);
            probes[left++] = probes[each];
        }
    }
    return left;
}

void kernel_look_ahead(const KernelSought *sought, int count) {
    Probe probes[KERNEL_SOUGHT], found[KERNEL_SOUGHT];
    int left = 0, all = 0;
    for (int each = 0; each < count && each < KERNEL_SOUGHT; each++) {
        left += begin(&probes[left], &sought[each]);
    }
    for (int round = 0; round < ROUNDS && left > 0; round++) {
        left = try_places(probes, left, found, &all);
    }
    for (int each = 0; each < all; each++) {
        kernel_ask_for_items(found[each].key);
        kernel_ask_for_items(found[each].value);
    }
}

#define LOOKS_AHEAD 1

#else

#define LOOKS_AHEAD 0

void kernel_look_ahead(const KernelSought *Py_UNUSED(sought), int Py_UNUSED(count)) {}

#endif

int kernel_add_looks_ahead(PyObject *module) { return PyModule_AddObjectRef(module, "LOOKS_AHEAD", LOOKS_AHEAD ? Py_True : Py_False); }

/* Look ahead for the next keys of a list in one dict or, unless `other` is NULL, in two. Keys that are not plain are left out: to hash them may do
   anything. */
void kernel_warm(PyObject *dict, PyObject *other, PyObject *keys, Py_ssize_t index) {
    if (!LOOKS_AHEAD) {
        return;
    }
    KernelSought sought[KERNEL_SOUGHT];
    int count = 0;
    for (Py_ssize_t end = index + KERNEL_AHEAD; index < end && index < PyList_GET_SIZE(keys); index++) {
        PyObject *key = PyList_GET_ITEM(keys, index);
        if (kernel_is_plain(key)) {
            Py_hash_t hash = PyObject_Hash(key);
            sought[count++] = (KernelSought){dict, hash};
            if (other != NULL) {
                sought[count++] = (KernelSought){other, hash};
            }
        }
    }
    kernel_look_ahead(sought, count);
}
