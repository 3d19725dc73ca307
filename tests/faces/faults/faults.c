/* Loaded before the C library: lets writes and flushes of some files fail while a control file says so.
 *
 * FAULTS names the control file, which has one line: which calls fail with EIO (w: writes, s: flushes, ws: both), and a part
 * of the paths that it is about. Without that file everything works. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The error that a call on a file is to fail with, or 0. It leaves errno alone. */
static int fault(int fd, char call)
{
    const char *control = getenv("FAULTS");
    char line[PATH_MAX + 32], link[64], path[PATH_MAX + 1], calls[8], part[PATH_MAX + 1];
    int file, before = errno;
    ssize_t length;

    if (control == NULL || (file = syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC)) < 0) {
        errno = before;
        return 0;
    }
    length = syscall(SYS_read, file, line, sizeof line - 1);
    syscall(SYS_close, file);
    errno = before;
    if (length <= 0)
        return 0;
    line[length] = '\0';
    if (sscanf(line, "%7s %4096s", calls, part) != 2 || strchr(calls, call) == NULL)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length <= 0)
        return 0;
    path[length] = '\0';
    return strstr(path, part) == NULL ? 0 : EIO;
}

#define OR_FAIL(fd, call, otherwise)    \
    do {                                \
        int error = fault((fd), (call)); \
        if (error != 0) {               \
            errno = error;              \
            return -1;                  \
        }                               \
        return (otherwise);             \
    } while (0)

ssize_t write(int fd, const void *bytes, size_t count)
{
    OR_FAIL(fd, 'w', syscall(SYS_write, fd, bytes, count));
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    OR_FAIL(fd, 'w', syscall(SYS_writev, fd, parts, count));
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    OR_FAIL(fd, 'w', syscall(SYS_pwrite64, fd, bytes, count, offset));
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    return pwrite64(fd, bytes, count, offset);
}

int fsync(int fd)
{
    OR_FAIL(fd, 's', syscall(SYS_fsync, fd));
}

int fdatasync(int fd)
{
    OR_FAIL(fd, 's', syscall(SYS_fdatasync, fd));
}
