// Faults of the machine for one process. The library is preloaded (LD_PRELOAD) and reads numbers from a mapped file. A
// test therefore switches faults while the process runs. Only regular files are affected. Sockets, pipes and the
// terminal work normally.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// The numbers, in the order of faults.rs.
enum { WRITE_ERRNO, SYNC_ERRNO, PER_MILLE, SHORT, DELAY_US, CLOCK_MS, RESULT_ERRNO, RESULT_HOLD, INJECTED, NUMBERS };

static _Atomic int64_t none[NUMBERS];
static _Atomic int64_t *numbers = none;
static _Atomic uint64_t state = 88172645463325252ull;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS");
    if (path == NULL) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED) numbers = map;
}

static int64_t get(int which) { return atomic_load(&numbers[which]); }

static int chosen(void) {
    uint64_t now = atomic_fetch_add(&state, 0x9e3779b97f4a7c15ull);
    now ^= now >> 31;
    now *= 0xbf58476d1ce4e5b9ull;
    now ^= now >> 27;
    return (int64_t)(now % 1000) < get(PER_MILLE);
}

static int is_file(int fd) {
    struct stat found;
    return fd > 2 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

static void wait_a_while(void) {
    int64_t us = get(DELAY_US);
    if (us <= 0) return;
    atomic_fetch_add(&numbers[INJECTED], 1);
    struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&pause, NULL);
}

// Returns 1 and sets errno if the call must fail.
static int fails(int which) {
    int64_t error = get(which);
    if (error == 0 || !chosen()) return 0;
    atomic_fetch_add(&numbers[INJECTED], 1);
    errno = (int)error;
    return 1;
}

static size_t cut(size_t length) {
    if (get(SHORT) == 0 || length < 2 || !chosen()) return length;
    atomic_fetch_add(&numbers[INJECTED], 1);
    return length / 2;
}

#define NEXT(name) \
    static __typeof__(name) *next; \
    if (next == NULL) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *bytes, size_t length) {
    NEXT(write);
    if (!is_file(fd)) return next(fd, bytes, length);
    wait_a_while();
    return fails(WRITE_ERRNO) ? -1 : next(fd, bytes, cut(length));
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    NEXT(pwrite);
    if (!is_file(fd)) return next(fd, bytes, length, at);
    wait_a_while();
    return fails(WRITE_ERRNO) ? -1 : next(fd, bytes, cut(length), at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
    NEXT(pwrite64);
    if (!is_file(fd)) return next(fd, bytes, length, at);
    wait_a_while();
    return fails(WRITE_ERRNO) ? -1 : next(fd, bytes, cut(length), at);
}

// Returns 1 for the path of a stored result. Stored results are opened for each read and write.
static int is_result(const char *path) {
    return path != NULL && strstr(path, "/tool-results/") != NULL;
}

// Waits until the hold ends, if the path is a stored result of a session with the id `slow`.
static void wait_for_release(const char *path) {
    if (get(RESULT_HOLD) == 0 || path == NULL || strstr(path, "/slow/tool-results/") == NULL) return;
    atomic_fetch_add(&numbers[INJECTED], 1);
    struct timespec pause = {0, 5000000};
    while (get(RESULT_HOLD) != 0) nanosleep(&pause, NULL);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        NEXT(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        wait_for_release(path); \
        return is_result(path) && fails(RESULT_ERRNO) ? -1 : next(path, flags, mode); \
    }

OPEN(open)
OPEN(open64)

int fsync(int fd) {
    NEXT(fsync);
    if (!is_file(fd)) return next(fd);
    wait_a_while();
    return fails(SYNC_ERRNO) ? -1 : next(fd);
}

int fdatasync(int fd) {
    NEXT(fdatasync);
    if (!is_file(fd)) return next(fd);
    wait_a_while();
    return fails(SYNC_ERRNO) ? -1 : next(fd);
}

int ftruncate(int fd, off_t length) {
    NEXT(ftruncate);
    return is_file(fd) && fails(WRITE_ERRNO) ? -1 : next(fd, length);
}

int ftruncate64(int fd, off64_t length) {
    NEXT(ftruncate64);
    return is_file(fd) && fails(WRITE_ERRNO) ? -1 : next(fd, length);
}

int sync_file_range(int fd, off64_t at, off64_t length, unsigned int flags) {
    NEXT(sync_file_range);
    return is_file(fd) && fails(SYNC_ERRNO) ? -1 : next(fd, at, length, flags);
}

int clock_gettime(clockid_t which, struct timespec *now) {
    NEXT(clock_gettime);
    int outcome = next(which, now);
    int64_t ms = get(CLOCK_MS);
    if (outcome == 0 && which == CLOCK_REALTIME && ms != 0) {
        now->tv_sec += ms / 1000;
        atomic_fetch_add(&numbers[INJECTED], 1);
    }
    return outcome;
}
