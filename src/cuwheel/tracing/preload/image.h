/* What a program hands to the driver as code: a place in a file that is mapped, or memory of its own. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/uio.h>

#define WRAPPER_MAGIC 0x466243b1u
#define CONTAINER_MAGIC 0xba55ed50u
#define HASHED (64u * 1024u)

struct wrapper {
    uint32_t magic, version;
    const void *data;
    const void *more;
};

struct container {
    uint32_t magic;
    uint16_t version, header;
    uint64_t size;
};

struct place {
    uintptr_t address;
    uint64_t offset;
    char path[PATH_MAX];
    bool found;
};

static int look_in(struct dl_phdr_info *object, size_t size, void *data) {
    struct place *place = data;
    (void)size;
    for (int index = 0; index < object->dlpi_phnum; index++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[index];
        uintptr_t start = object->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD || place->address < start || place->address - start >= segment->p_filesz)
            continue;
        place->offset = place->address - start + segment->p_offset;
        place->found = true;
        if (object->dlpi_name && object->dlpi_name[0])
            snprintf(place->path, sizeof place->path, "%s", object->dlpi_name);
        else { /* the program itself */
            ssize_t count = readlink("/proc/self/exe", place->path, sizeof place->path - 1);
            place->path[count < 0 ? 0 : count] = 0;
        }
        return 1;
    }
    return 0;
}

/* The file that a byte of memory was loaded from, and where in it. */
static bool find_place(const void *address, struct place *place) {
    place->address = (uintptr_t)address;
    place->found = false;
    dl_iterate_phdr(look_in, place);
    return place->found;
}

/* Images come from anywhere, cut short or made up, and the driver merely refuses those: so their bytes are asked of
 * the system, which says where memory ends. How many there are; where it may not answer, all are taken to be there. */
static size_t copied(void *to, const void *from, size_t size) {
    struct iovec here = {to, size}, there = {(void *)from, size};
    ssize_t count = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    if (count < 0 && errno != EFAULT) {
        memcpy(to, from, size);
        return size;
    }
    return count < 0 ? 0 : (size_t)count;
}

static uint64_t hash_of(const unsigned char *bytes, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t index = 0; index < size; index++)
        hash = (hash ^ bytes[index]) * 0x100000001b3u;
    return hash;
}

static void add_hash(const void *image, size_t size) {
    static unsigned char start[HASHED]; /* guarded by the lock of the line, as all of these */
    char text[32];
    size_t there = copied(start, image, size < HASHED ? size : HASHED);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash_of(start, there));
    add_text("hash", text, sizeof text);
}

/* Up to where an ELF file reaches: its tables come last, or its last section does. */
static size_t elf_size(const unsigned char *image, const Elf64_Ehdr *head) {
    size_t end = head->e_shoff + (size_t)head->e_shentsize * head->e_shnum;
    if (head->e_shentsize == sizeof(Elf64_Shdr))
        for (unsigned index = 0; index < head->e_shnum; index++) {
            Elf64_Shdr section;
            if (copied(&section, image + head->e_shoff + index * sizeof section, sizeof section) < sizeof section)
                return sizeof *head;
            if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > end)
                end = section.sh_offset + section.sh_size;
        }
    return end;
}

static void add_hex(const char *key, const unsigned char *bytes, size_t size) {
    char text[2 * sizeof(Elf64_Ehdr) + 1];
    for (size_t index = 0; index < size && 2 * index + 2 < sizeof text; index++)
        snprintf(text + 2 * index, 3, "%02x", bytes[index]);
    add_text(key, text, sizeof text);
}

/* The line of PTX that begins with this word. */
static void add_directive(const char *key, const char *text, size_t size, const char *word) {
    const char *at = memmem(text, size, word, strlen(word));
    if (at)
        add_text(key, at + strlen(word), strcspn(at + strlen(word), "\r\n"));
}

static void add_memory(const void *image) {
    Elf64_Ehdr head = {0};
    const struct container *container = (const void *)&head;
    copied(&head, image, sizeof head);
    if (memcmp(&head, ELFMAG, SELFMAG) == 0) {
        size_t size = elf_size(image, &head);
        add_text("kind", "cubin", 16);
        add_number("size", (int64_t)size);
        add_hex("head", (const unsigned char *)&head, sizeof head);
        add_hash(image, size);
    } else if (container->magic == CONTAINER_MAGIC) {
        size_t size = container->header + container->size;
        add_text("kind", "fatbin", 16);
        add_number("size", (int64_t)size);
        add_hash(image, size);
    } else {
        size_t size = strnlen(image, 1u << 26);
        add_text("kind", "ptx", 16);
        add_number("size", (int64_t)size);
        add_directive("ptx_isa", image, size, ".version");
        add_directive("target", image, size, ".target");
        add_hash(image, size);
    }
}

/* Needs an event that has begun. */
static void add_image(const void *image) {
    static struct place place; /* guarded by the lock of the line */
    const struct wrapper *wrapper = image;
    if (!image)
        return;
    if (wrapper->magic == WRAPPER_MAGIC) {
        add_number("wrapper", wrapper->version);
        image = wrapper->data;
    }
    if (find_place(image, &place)) {
        add_text("file", place.path, sizeof place.path);
        add_number("offset", (int64_t)place.offset);
    }
    add_memory(image);
}
