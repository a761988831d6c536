/* Handles of kernels: their names, whether they were launched, and which were the last.
 *
 * A launch looks its handle up without a lock, in a table that only grows. */
#include <stdatomic.h>
#include <sys/mman.h>

#define SLOTS (1u << 16)
#define LAST 16u

enum kind { UNKNOWN, FUNCTION_OF_MODULE, KERNEL_OF_LIBRARY, GRAPH };

struct kernel {
    _Atomic(void *) handle;
    _Atomic(const char *) name; /* of a graph: of all its kernels, each with GRAPH_MARK before it */
    _Atomic(unsigned) launched;
    _Atomic(unsigned) kind;
    _Atomic(unsigned long) count; /* of its launches; of a graph, of those of the graph */
};
#define GRAPH_MARK '\n'

static struct kernel kernels[SLOTS];
static _Atomic(unsigned) kernel_count;
static _Atomic(unsigned long) launches;
static struct kernel *last[LAST];

static struct kernel *slot_of(void *handle) {
    uintptr_t hash = (uintptr_t)handle;
    hash = (hash ^ hash >> 17) * 0x9e3779b97f4a7c15u;
    for (unsigned index = (unsigned)(hash >> 40);; index++) {
        struct kernel *slot = &kernels[index % SLOTS];
        void *found = atomic_load_explicit(&slot->handle, memory_order_acquire);
        if (found == handle || !found)
            return slot;
    }
}

/* Names outlive what they came from: a module may be unloaded before its kernel is spoken of. */
static const char *kept(const char *name) {
    static char *room;
    static size_t left;
    size_t size = strnlen(name, NAME_ROOM - 1) + 1;
    if (left < size) {
        void *made = mmap(NULL, 1u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED)
            return NULL;
        room = made;
        left = 1u << 20;
    }
    char *copy = room;
    memcpy(copy, name, size - 1);
    room += size;
    left -= size;
    return copy;
}

/* Under the lock of the line. NULL where there are more kernels than anybody has seen. */
static struct kernel *enter(void *handle, const char *name) {
    struct kernel *slot = slot_of(handle);
    if (atomic_load(&slot->handle) == NULL) {
        if (atomic_load(&kernel_count) >= SLOTS / 2)
            return NULL;
        atomic_fetch_add(&kernel_count, 1);
    }
    const char *known = atomic_load(&slot->name);
    if (name && (!known || strncmp(known, name, NAME_ROOM - 1) != 0)) {
        atomic_store(&slot->name, kept(name));
        atomic_store(&slot->launched, 0); /* a handle of something that is gone, used again */
        if (known)
            atomic_store(&slot->count, 0);
    }
    atomic_store_explicit(&slot->handle, handle, memory_order_release);
    return slot;
}

static const char *name_of(void *handle) {
    struct kernel *slot = slot_of(handle);
    return atomic_load(&slot->handle) ? atomic_load(&slot->name) : NULL;
}
