/* CUDA graphs: which kernels one is made of, so that a graph that is launched counts among the last launches.
 *
 * They are asked of the driver when the graph is instantiated: the kernels' own launches were captured long before. */
#define MOST_NODES 4096u /* of each graph; a name counts once */
#define MOST_DEPTH 4
#define GRAPH_ROOM 2048u
#define MOST_GRAPHS 8192u /* programs make the same ones again and again */

enum node_type { KERNEL_NODE = 0, GRAPH_NODE = 4 };

struct graph_reader {
    result (*nodes)(handle, handle *, size_t *);
    result (*type)(handle, int *);
    result (*kernel)(handle, void **);
    result (*child)(handle, handle *);
    result (*name_of_function)(const char **, handle);
    result (*name_of_kernel)(const char **, handle);
    char names[GRAPH_ROOM];
    size_t length;
};

static void add_graph_kernel(struct graph_reader *reader, const char *name) {
    char entry[1024];
    int size = snprintf(entry, sizeof entry, "%c%s", GRAPH_MARK, name);
    if (size >= (int)sizeof entry || reader->length + (size_t)size + 2 > GRAPH_ROOM)
        return;
    for (const char *found = strstr(reader->names, entry); found; found = strstr(found + 1, entry))
        if (found[size] == 0 || found[size] == GRAPH_MARK)
            return;
    memcpy(reader->names + reader->length, entry, (size_t)size + 1);
    reader->length += (size_t)size;
}

/* The driver may hand out another handle than the one that was launched. */
static const char *name_in_node(const struct graph_reader *reader, handle function, handle kernel) {
    const char *name = function ? name_of(function) : kernel ? name_of(kernel) : NULL;
    if (name)
        return name;
    if (function && reader->name_of_function && reader->name_of_function(&name, function) == OK)
        return name;
    return kernel && reader->name_of_kernel && reader->name_of_kernel(&name, kernel) == OK ? name : NULL;
}

static void read_graph(struct graph_reader *reader, handle graph, int depth) {
    size_t count = 0;
    if (depth > MOST_DEPTH || reader->nodes(graph, NULL, &count) != OK || !count)
        return;
    if (count > MOST_NODES)
        count = MOST_NODES;
    size_t room = count * sizeof(handle);
    handle *nodes = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED)
        return;
    if (reader->nodes(graph, nodes, &count) == OK)
        for (size_t index = 0; index < count; index++) {
            void *parameters[32] = {0}; /* more than any version has: function first, a kernel further behind */
            handle inner = NULL;
            int type = -1;
            if (reader->type(nodes[index], &type) != OK)
                continue;
            if (type == KERNEL_NODE && reader->kernel(nodes[index], parameters) == OK) {
                const char *name = name_in_node(reader, parameters[0], parameters[7]);
                if (name)
                    add_graph_kernel(reader, name);
            } else if (type == GRAPH_NODE && reader->child && reader->child(nodes[index], &inner) == OK)
                read_graph(reader, inner, depth + 1);
        }
    munmap(nodes, room);
}

/* One that can be launched, made of a graph or renewed by one. */
static void graph_ready(const char *api, result status, handle ready, handle graph, void *caller) {
    static struct graph_reader reader;
    static unsigned count;
    static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
    if (status != OK) {
        failed(api, status, caller, (struct asked){.bytes = 0});
        return;
    }
    if (pthread_mutex_trylock(&reading))
        return;
    if (count++ >= MOST_GRAPHS) {
        pthread_mutex_unlock(&reading);
        return;
    }
    reader.nodes = driver_symbol("cuGraphGetNodes");
    reader.type = driver_symbol("cuGraphNodeGetType");
    reader.kernel = driver_symbol("cuGraphKernelNodeGetParams_v2");
    reader.child = driver_symbol("cuGraphChildGraphNodeGetGraph");
    reader.name_of_function = driver_symbol("cuFuncGetName");
    reader.name_of_kernel = driver_symbol("cuKernelGetName");
    if (!reader.kernel)
        reader.kernel = driver_symbol("cuGraphKernelNodeGetParams");
    reader.length = 0;
    reader.names[0] = 0;
    if (reader.nodes && reader.type && reader.kernel)
        read_graph(&reader, graph, 0);
    if (begin_event("graph", now())) {
        struct kernel *slot = enter(ready, reader.names);
        if (slot) {
            atomic_store(&slot->kind, GRAPH);
        }
        add_handle("handle", ready);
        add(",\"names\":");
        add_names(reader.names);
        end_event();
    }
    pthread_mutex_unlock(&reading);
}

#define READY(name, parameters, arguments, ready, graph) \
    FUNCTION(name, parameters, arguments, , graph_ready(#name, status, status == OK ? (ready) : NULL, graph, CALLER))
READY(cuGraphInstantiateWithFlags, (handle * ready, handle graph, uint64_t flags), (ready, graph, flags), *ready, graph)
READY(cuGraphInstantiate_v2, (handle * ready, handle graph, handle *node, char *log, size_t size),
      (ready, graph, node, log, size), *ready, graph)
READY(cuGraphInstantiateWithParams, (handle * ready, handle graph, void *parameters), (ready, graph, parameters), *ready,
      graph)
READY(cuGraphInstantiateWithParams_ptsz, (handle * ready, handle graph, void *parameters), (ready, graph, parameters),
      *ready, graph)
READY(cuGraphExecUpdate_v2, (handle ready, handle graph, void *found), (ready, graph, found), ready, graph)

static inline void graph_launched(const char *api, result status, handle graph, void *caller) {
    struct kernel *slot = slot_of(graph);
    if (__builtin_expect(status != OK, 0))
        failed(api, status, caller, (struct asked){.bytes = 0});
    else if (atomic_load_explicit(&slot->kind, memory_order_relaxed) == GRAPH)
        remember(slot);
}
#define LAUNCH_GRAPH(name) \
    FUNCTION(name, (handle graph, handle stream), (graph, stream), , graph_launched(#name, status, graph, CALLER))
LAUNCH_GRAPH(cuGraphLaunch)
LAUNCH_GRAPH(cuGraphLaunch_ptsz)

#define GRAPH_FUNCTIONS(X)                                                                                      \
    X(cuGraphInstantiateWithFlags) X(cuGraphInstantiate_v2) X(cuGraphInstantiateWithParams)                     \
    X(cuGraphInstantiateWithParams_ptsz) X(cuGraphExecUpdate_v2) X(cuGraphLaunch) X(cuGraphLaunch_ptsz)
