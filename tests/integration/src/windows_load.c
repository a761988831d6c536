/* Loads a library where it was linked for, or with that place taken (`moved`); what it needs is beside it.
 * A program without other libraries: those of Python's take the usual place first. Prints where it is. */
#include <stdio.h>
#include <windows.h>

int main(int count, char **words) {
    unsigned char head[4096];
    size_t read = 0;
    FILE *file = count > 2 ? fopen(words[1], "rb") : NULL;
    if (file)
        read = fread(head, 1, sizeof head, file);
    if (read < sizeof head)
        return 2;
    fclose(file);
    const IMAGE_NT_HEADERS64 *header = (const void *)(head + ((const IMAGE_DOS_HEADER *)(const void *)head)->e_lfanew);
    void *base = (void *)(uintptr_t)header->OptionalHeader.ImageBase;
    if (words[2][0] == 'm' && VirtualAlloc(base, 65536, MEM_RESERVE, PAGE_NOACCESS) != base)
        return 3;
    void *found = LoadLibraryExA(words[1], NULL, LOAD_WITH_ALTERED_SEARCH_PATH);
    if (!found)
        printf("error %lu", GetLastError());
    else
        fputs(found == base ? "in place" : "moved", stdout);
    fflush(stdout);
    TerminateProcess(GetCurrentProcess(), 0); /* what libraries do at the end of a process is not what is tried */
    return 0;
}
