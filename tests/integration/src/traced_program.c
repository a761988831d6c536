// Programs that use a driver in the ways in which real ones do. The first word says how.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int launch_t(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
typedef int load_t(void **, const void *, void *, void **, unsigned, void *, void **, unsigned);
typedef int kernel_t(void **, void *, const char *);
typedef int ask_t(const char *, void **, int, uint64_t, void *);

// A fat binary without entries, as compilers leave it in a library.
static const struct { uint32_t magic; uint16_t version, header; uint64_t size; } container = {0xba55ed50u, 1, 16, 0};
static const struct { uint32_t magic, version; const void *data, *more; } wrapper = {0x466243b1u, 1, &container, 0};

static ask_t *ask;
static launch_t *launch;
static load_t *load;
static kernel_t *get_kernel;
static int (*synchronize)(void);
static int (*allocate)(uint64_t *, size_t);

static void asked(int flags, uint64_t stream) {
  void *driver = dlopen("libcuda.so.1", flags);
  if (!driver) { fprintf(stderr, "%s\n", dlerror()); exit(90); }
  ask = (ask_t *)dlsym(driver, "cuGetProcAddress_v2");
  if (!ask || ask("cuLaunchKernel", (void **)&launch, 13000, stream, 0) || ask("cuLibraryLoadData", (void **)&load, 13000, 0, 0) ||
      ask("cuLibraryGetKernel", (void **)&get_kernel, 13000, 0, 0) || ask("cuCtxSynchronize", (void **)&synchronize, 13000, 0, 0) ||
      ask("cuMemAlloc", (void **)&allocate, 13000, 0, 0))
    exit(91);
}

// What a driver has, by its name.
static void *function(const char *name) {
  void *found = 0;
  if (ask(name, &found, 13000, 0, 0)) exit(96);
  return found;
}

static void *kernel_of(const char *name) {
  void *library, *kernel = 0;
  if (load(&library, &wrapper, 0, 0, 0, 0, 0, 0) || get_kernel(&kernel, library, name)) exit(97);
  return kernel;
}

static int replay(void) {
  void *ready, *first = kernel_of("_Z5chasePPi"), *second = kernel_of("_Z4fillPi"), *other = kernel_of("_Z5otherv");
  void (*graph_of)(void *, void *) = dlsym(RTLD_DEFAULT, "fake_graph_of");
  int (*instantiate)(void **, void *, uint64_t) = function("cuGraphInstantiateWithFlags");
  int (*launch_graph)(void *, void *) = function("cuGraphLaunch");
  graph_of(first + 1, second); // the driver may name a kernel by another handle
  if (instantiate(&ready, (void *)2, 0)) return 98;
  for (int count = 0; count < 20; count++) launch(other, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
  return launch_graph(ready, 0) || launch_graph(ready, 0) ? 99 : synchronize();
}

// An image that ends where memory ends, though its head says otherwise.
static int cut_short(void) {
  int (*load_module)(void **, const void *) = function("cuModuleLoadData");
  char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *image = pages + 4096 - 64;
  void *module;
  mprotect(pages + 4096, 4096, PROT_NONE);
  memset(image, 255, 64);
  memcpy(image, "\177ELF", 4);
  image[58] = 64, image[59] = 0; // the size of a section's row
  return load_module(&module, image);
}

static int compile(void) {
  int (*load_module)(void **, const char *, unsigned, int *, void **) = function("cuModuleLoadDataEx");
  static char log[256];
  int options[] = {5, 6};
  void *module, *values[] = {log, (void *)sizeof log};
  return load_module(&module, ".version 8.0\n.target sm_90\nabsent;", 2, options, values);
}

static bool ends_with(const char *text, const char *end) {
  return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

static volatile sig_atomic_t ticks;
static void tick(int number) { (void)number; ticks++; }

static void fork_now(int number) {
  struct itimerval once = {{0, 0}, {0, 10000}}; // the next when this one is done, or nothing else would ever run
  if (gettid() != getpid()) { // the first thread starts the others, and may be in the allocator, which fork waits for
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, 0, 0);
  }
  tick(number);
  if (ticks < 20) setitimer(ITIMER_REAL, &once, 0);
}

static int run(const char *name, unsigned threads) {
  void *library, *kernel;
  int status = load(&library, &wrapper, 0, 0, 0, 0, 0, 0);
  if (!status) status = get_kernel(&kernel, library, name);
  if (!status) status = launch(kernel, 1, 1, 1, threads, 1, 1, 0, 0, 0, 0);
  if (!status) status = synchronize();
  return status;
}

static void *forks(void *unused) {
  for (int count = 0; count < 5; count++) {
    pid_t child = fork();
    int status;
    if (child == 0) { alarm(300); exit(run("_Z5childPf", 32)); }
    waitpid(child, &status, 0);
    if (status) exit(87);
  }
  return unused;
}

static void *many(void *name) {
  for (int index = 0; index < 50; index++)
    if (run(name, 32)) exit(92);
  return 0;
}

int main(int count, char **words) {
  const char *how = count > 1 ? words[1] : "runtime";
  uint64_t address;
  if (strcmp(how, "everywhere") == 0) { // whoever is asked, it is one function
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    void *again = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), *self = dlopen(0, RTLD_NOW);
    void *found = dlsym(driver, "cuLaunchKernel");
    asked(RTLD_NOW, 0);
    if (found != (void *)launch || found != dlsym(again, "cuLaunchKernel") || found != dlsym(RTLD_DEFAULT, "cuLaunchKernel") ||
        found != dlsym(self, "cuLaunchKernel") || dlsym(driver, "cuNoSuchThing") || dlsym(again, "cuStreamQuery"))
      return 89;
    return run("_Z5scalePf", 32);
  }
  if (strcmp(how, "namespace") == 0) { // a second copy of everything
    void *driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*initialize)(unsigned) = driver ? dlsym(driver, "cuInit") : 0;
    if (!initialize || initialize(0)) return 85;
    asked(RTLD_NOW, 0);
    return run("_Z5scalePf", 32);
  }
  if (strcmp(how, "nothing") == 0) return dlsym(RTLD_DEFAULT, "cuLaunchKernel") ? 93 : 0;
  if (strcmp(how, "next") == 0) return dlsym(RTLD_NEXT, "getpid") == (void *)0;
  asked(strcmp(how, "local") == 0 ? RTLD_NOW | RTLD_LOCAL : strcmp(how, "deep") == 0 ? RTLD_NOW | RTLD_DEEPBIND : RTLD_NOW | RTLD_GLOBAL,
        strcmp(how, "streams") == 0 ? 2 : 0);
  if (strcmp(how, "absent") == 0) return run("absent_kernel", 32);
  if (strcmp(how, "swallows") == 0) return run("absent_kernel", 32) == 209 ? run("_Z5scalePf", 32) : 94;
  if (strcmp(how, "shape") == 0) return run("_Z5scalePf", 4096);
  if (strcmp(how, "begins") == 0 || strcmp(how, "forked") == 0) { // and does nothing, or forks
    int (*initialize)(unsigned) = function("cuInit"), (*current)(void **) = function("cuCtxGetCurrent"), status;
    void *context;
    if (initialize(0) || strcmp(how, "begins") == 0) return 0;
    if (fork() == 0) exit(current(&context));
    wait(&status);
    return WEXITSTATUS(status);
  }
  if (ends_with(how, "private")) { // CUDA 11's runtime has no public function for what it loads
    int (*initialize)(unsigned) = function("cuInit"), (*load_in_private)(void) = dlsym(RTLD_DEFAULT, "fake_private_load");
    initialize(0);
    if (strcmp(how, "swallowed-private") == 0) return load_in_private() == 209 ? launch(&ask, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0) : 84;
    return load_in_private();
  }
  if (strcmp(how, "again") == 0) { // a library that tries and tries
    void *library, *kernel;
    ((int (*)(unsigned))function("cuInit"))(0);
    load(&library, &wrapper, 0, 0, 0, 0, 0, 0);
    for (int index = 0; index < 40; index++) get_kernel(&kernel, library, "absent_kernel");
    return 209;
  }
  if (strcmp(how, "registers") == 0) return run("_Z5heavyPf", 512);
  if (strcmp(how, "shared") == 0) return launch(kernel_of("_Z4widePf"), 1, 1, 1, 32, 1, 1, 200 << 10, 0, 0, 0);
  if (strcmp(how, "cooperative") == 0) return launch(kernel_of("_Z4meetPi"), 1 << 20, 1, 1, 32, 1, 1, 0, 0, 0, 0);
  if (strcmp(how, "graph") == 0) return replay();
  if (strcmp(how, "cut") == 0) return cut_short();
  if (strcmp(how, "ptx") == 0) return compile();
  if (strcmp(how, "free") == 0) {
    launch(kernel_of("_Z5scalePf"), 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
    int (*release)(uint64_t) = function("cuMemFree"), status = release(1);
    return release(1) == status ? status : 88;
  }
  if (strcmp(how, "pool") == 0) {
    int (*allocate_from)(uint64_t *, size_t, void *, void *) = function("cuMemAllocFromPoolAsync");
    return allocate_from(&address, (size_t)1 << 28, 0, 0);
  }
  bool by_fork = strcmp(how, "forking-signals") == 0;
  if (by_fork || strcmp(how, "signals") == 0) { // one every 100 microseconds, while 64 threads work
    struct itimerval often = {{0, by_fork ? 0 : 100}, {0, by_fork ? 3000 : 100}};
    struct sigaction action = {.sa_handler = by_fork ? fork_now : tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
  }
  if (strcmp(how, "middle") == 0) { // two threads fork while 8 others work
    pthread_t each[10];
    for (int index = 0; index < 10; index++)
      pthread_create(&each[index], 0, index < 8 ? many : forks, (void *)"_Z5scalePf");
    for (int index = 0; index < 10; index++) pthread_join(each[index], 0);
    return 0;
  }
  if (strcmp(how, "memory") == 0) return allocate(&address, (size_t)1 << 40);
  if (strcmp(how, "killed") == 0) { run("_Z5scalePf", 32); raise(SIGKILL); }
  if (strcmp(how, "refused") == 0) {
    void *ours = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW), *cupti = dlopen(getenv("CUWHEEL_CUPTI"), RTLD_NOW);
    int (*initialize)(void) = dlsym(ours, "InitializeInjection");
    void (*refuse)(const char *, int) = dlsym(cupti, "launch_refused");
    if (initialize() != 1) return 95;
    refuse("_Z5foundPf", 98);
    return 98;
  }
  if (strcmp(how, "threads") == 0 || ends_with(how, "signals")) {
    pthread_t each[64];
    for (int index = 0; index < 64; index++) pthread_create(&each[index], 0, many, (void *)"_Z5scalePf");
    for (int index = 0; index < 64; index++) pthread_join(each[index], 0);
    return ends_with(how, "signals") && !ticks ? 86 : 0;
  }
  if (strcmp(how, "fork") == 0) {
    run("_Z5scalePf", 32);
    pid_t child = fork();
    if (child == 0) exit(run("_Z5childPf", 32));
    int status;
    waitpid(child, &status, 0);
    return run("_Z5scalePf", 32) || status;
  }
  if (strcmp(how, "closes") == 0) {
    run("_Z5scalePf", 32);
    for (int each = 3; each < 1024; each++) close(each);
    FILE *own = fopen(words[2], "w");
    int status = run("_Z5againPf", 32);
    fputs("mine\n", own);
    return fclose(own) || status;
  }
  if (strcmp(how, "full") == 0) {
    struct rlimit limit = {200, 200};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  return run("_Z5scalePf", 32);
}
