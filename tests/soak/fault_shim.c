// Preloaded into a program, makes chosen calls of it fail, as a system does that refuses something (faults.py).
//
//   ZEEPO_FAULTS=CALL:N:CODE[;...]  the N-th CALL fails with errno CODE; N+: that and all later ones; CODE short: moves half
//   ZEEPO_FAULT_RANK=R              only on rank R of an Open MPI job
//   ZEEPO_FAULT_REPORT=PATH         PATH.fired is made when a fault happens; PATH.counts holds the calls, after a normal end
//
// Calls count that the program itself, libstdc++ or liburing make. Those of MPI and of the C library are left alone.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kMostFaults = 8, kNameSize = 32, kPathSize = 4096, kLargeAllocation = 16384 };

#define CALLS(of)                                                                                                        \
  of(open) of(fopen) of(mkostemp) of(mkdir) of(read) of(pread) of(write) of(pwrite) of(fsync) of(rename) of(fallocate)   \
  of(close) of(mmap) of(malloc) of(pthread_create) of(eventfd) of(io_uring_queue_init) of(io_uring_register_buffers)     \
  of(io_uring_submit)
#define INDEX(name) k_##name,
#define NAME(name) #name,
enum Call { CALLS(INDEX) kCalls };
static const char* const kNames[kCalls] = {CALLS(NAME)};

enum { kShort = -1, kNone = 0 };  // instead of an errno
struct Fault {
  enum Call call;
  long first;
  int onward, code;
};

static struct Fault faults[kMostFaults];
static int fault_count;
static atomic_long counts[kCalls];
static const char* report;
static const void* program;

static void parse_faults(const char* text) {
  while (text && *text && fault_count < kMostFaults) {
    char name[kNameSize], first[kNameSize], code[kNameSize];
    if (sscanf(text, "%31[a-z_]:%31[0-9+]:%31[a-z0-9]", name, first, code) != 3) {
      fprintf(stderr, "fault_shim: %s: write it like pread:3:5\n", text);
      _exit(99);
    }
    for (int i = 0; i < kCalls; ++i)
      if (strcmp(name, kNames[i]) == 0)
        faults[fault_count++] = (struct Fault){(enum Call)i, atol(first), strchr(first, '+') != NULL,
                                               strcmp(code, "short") == 0 ? kShort : atoi(code)};
    text = strchr(text, ';');
    if (text) ++text;
  }
}

__attribute__((constructor)) static void start(void) {
  Dl_info info;
  if (dladdr((const void*)getauxval(AT_ENTRY), &info)) program = info.dli_fbase;
  const char* rank = getenv("ZEEPO_FAULT_RANK");
  const char* own = getenv("OMPI_COMM_WORLD_RANK");
  report = getenv("ZEEPO_FAULT_REPORT");
  if (!rank || (own && strcmp(rank, own) == 0)) parse_faults(getenv("ZEEPO_FAULTS"));
}

// With the kernel's own calls, which are not counted.
static void write_report(const char* ending, const char* text) {
  if (!report) return;
  char path[kPathSize];
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  snprintf(path, sizeof path, "%s.%s.%s", report, rank ? rank : "0", ending);
  const long file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (file < 0) return;
  if (syscall(SYS_write, file, text, strlen(text)) < 0) perror(path);
  syscall(SYS_close, file);
}

__attribute__((destructor)) static void end(void) {
  char text[kPathSize];
  int size = 0;
  for (int i = 0; i < kCalls; ++i) size += snprintf(text + size, sizeof text - size, "%s %ld\n", kNames[i], counts[i]);
  write_report("counts", text);
}

static int of_program(const void* caller) {
  Dl_info info;
  if (!dladdr(caller, &info)) return 0;
  return info.dli_fbase == program || strstr(info.dli_fname, "libstdc++") || strstr(info.dli_fname, "liburing");
}

// What is to happen to this call: nothing, kShort, or an errno.
static int verdict(enum Call call, const void* caller) {
  if (!program || !of_program(caller)) return kNone;
  const long number = atomic_fetch_add(&counts[call], 1) + 1;
  for (int i = 0; i < fault_count; ++i) {
    const struct Fault* fault = &faults[i];
    if (fault->call != call || number < fault->first || (number > fault->first && !fault->onward)) continue;
    char text[kPathSize];
    snprintf(text, sizeof text, "%s %ld\n", kNames[call], number);
    write_report("fired", text);
    return fault->code;
  }
  return kNone;
}

#define CALLER __builtin_return_address(0)
// The function of this name that would have been called.
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
// Fails with -1 and errno where a fault is due.
#define REFUSE(call)                             \
  do {                                           \
    const int fault = verdict(k_##call, CALLER); \
    if (fault > 0) {                             \
      errno = fault;                             \
      return -1;                                 \
    }                                            \
  } while (0)

static mode_t mode_of(int flags, va_list rest) {
  return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name)                                   \
  int name(const char* path, int flags, ...) {       \
    REFUSE(open);                                    \
    va_list rest;                                    \
    va_start(rest, flags);                           \
    const mode_t mode = mode_of(flags, rest);        \
    va_end(rest);                                    \
    return REAL(name)(path, flags, mode);            \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                          \
  int name(int directory, const char* path, int flags, ...) { \
    REFUSE(open);                                             \
    va_list rest;                                             \
    va_start(rest, flags);                                    \
    const mode_t mode = mode_of(flags, rest);                 \
    va_end(rest);                                             \
    return REAL(name)(directory, path, flags, mode);          \
  }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                  \
  FILE* name(const char* path, const char* mode) {   \
    const int fault = verdict(k_fopen, CALLER);      \
    if (fault > 0) {                                 \
      errno = fault;                                 \
      return NULL;                                   \
    }                                                \
    return REAL(name)(path, mode);                   \
  }
FOPEN(fopen)
FOPEN(fopen64)

#define MKOSTEMP(name)                 \
  int name(char* path, int flags) {    \
    REFUSE(mkostemp);                  \
    return REAL(name)(path, flags);    \
  }
MKOSTEMP(mkostemp)
MKOSTEMP(mkostemp64)

int mkdir(const char* path, mode_t mode) {
  REFUSE(mkdir);
  return REAL(mkdir)(path, mode);
}

static size_t half(size_t bytes) { return bytes > 1 ? bytes / 2 : bytes; }

// Fails, or moves half of what is asked for.
#define MOVE(call)                                \
  do {                                            \
    const int fault = verdict(k_##call, CALLER);  \
    if (fault > 0) {                              \
      errno = fault;                              \
      return -1;                                  \
    }                                             \
    if (fault == kShort) bytes = half(bytes);     \
  } while (0)

// The counter of an eventfd, which the kernel never refuses to move.
static int is_counter(size_t bytes) { return bytes == 8; }

ssize_t read(int file, void* data, size_t bytes) {
  if (!is_counter(bytes)) MOVE(read);
  return REAL(read)(file, data, bytes);
}
ssize_t write(int file, const void* data, size_t bytes) {
  if (!is_counter(bytes)) MOVE(write);
  return REAL(write)(file, data, bytes);
}
ssize_t pread(int file, void* data, size_t bytes, off_t at) {
  MOVE(pread);
  return REAL(pread)(file, data, bytes, at);
}
ssize_t pread64(int file, void* data, size_t bytes, off64_t at) {
  MOVE(pread);
  return REAL(pread64)(file, data, bytes, at);
}
ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  MOVE(pwrite);
  return REAL(pwrite)(file, data, bytes, at);
}
ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t at) {
  MOVE(pwrite);
  return REAL(pwrite64)(file, data, bytes, at);
}

int fsync(int file) {
  REFUSE(fsync);
  return REAL(fsync)(file);
}
int rename(const char* from, const char* to) {
  REFUSE(rename);
  return REAL(rename)(from, to);
}
int fallocate(int file, int mode, off_t at, off_t bytes) {
  REFUSE(fallocate);
  return REAL(fallocate)(file, mode, at, bytes);
}
int fallocate64(int file, int mode, off64_t at, off64_t bytes) {
  REFUSE(fallocate);
  return REAL(fallocate64)(file, mode, at, bytes);
}
// The descriptor is closed all the same, as the kernel does it.
int close(int file) {
  const int fault = verdict(k_close, CALLER), code = REAL(close)(file);
  if (fault <= 0) return code;
  errno = fault;
  return -1;
}

#define MMAP(name, offset)                                                                      \
  void* name(void* at, size_t bytes, int protection, int flags, int file, offset from) {        \
    const int fault = verdict(k_mmap, CALLER);                                                  \
    if (fault > 0) {                                                                            \
      errno = fault;                                                                            \
      return (void*)-1;                                                                         \
    }                                                                                           \
    return REAL(name)(at, bytes, protection, flags, file, from);                                \
  }
void* mmap(void*, size_t, int, int, int, off_t);
void* mmap64(void*, size_t, int, int, int, off64_t);
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

// Small allocations do not fail on Linux. dlsym() itself allocates, so the C library's function is called by its own name.
void* __libc_malloc(size_t bytes);
void* malloc(size_t bytes) {
  if (bytes >= kLargeAllocation && verdict(k_malloc, CALLER) > 0) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_malloc(bytes);
}

// These return their fault.
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  const int fault = verdict(k_pthread_create, CALLER);
  return fault > 0 ? fault : REAL(pthread_create)(thread, attributes, run, argument);
}
int eventfd(unsigned int value, int flags);
int eventfd(unsigned int value, int flags) {
  REFUSE(eventfd);
  return REAL(eventfd)(value, flags);
}

struct io_uring;
struct iovec;
int io_uring_queue_init(unsigned entries, struct io_uring* ring, unsigned flags) {
  const int fault = verdict(k_io_uring_queue_init, CALLER);
  return fault > 0 ? -fault : REAL(io_uring_queue_init)(entries, ring, flags);
}
int io_uring_register_buffers(struct io_uring* ring, const struct iovec* buffers, unsigned count) {
  const int fault = verdict(k_io_uring_register_buffers, CALLER);
  return fault > 0 ? -fault : REAL(io_uring_register_buffers)(ring, buffers, count);
}
int io_uring_submit(struct io_uring* ring) {
  const int fault = verdict(k_io_uring_submit, CALLER);
  return fault > 0 ? -fault : REAL(io_uring_submit)(ring);
}
