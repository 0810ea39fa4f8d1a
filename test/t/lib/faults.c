/*
 * faults.c
 *		Memory and disk that are full, at a chosen moment, without any right that
 *		a test may not have.
 *
 * The server is started with this as LD_PRELOAD.  fault_arm(kind, n) lets the
 * n-th request of this process from now on fail:
 *
 *		memory	malloc, realloc, calloc return NULL; but not where the server keeps
 *				the place of a table's statistics, which it would find half made at
 *				the session's end: a failed assertion, where it checks those
 *		disk	what makes a file of the database longer, temporary ones included,
 *				fails: ENOSPC.  (Not the log of transactions, whose end is the
 *				server's.)
 *
 * fault_disarm() says whether it came to that.
 */
#define _GNU_SOURCE
#include "postgres.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

extern void *__libc_malloc(size_t size);
extern void *__libc_realloc(void *pointer, size_t size);
extern void *__libc_calloc(size_t n, size_t size);

static long memory_left = 0;	/* requests until one fails; 0: none does */
static long disk_left = 0;
static int	failed = 0;

static int
fails(long *left)
{
	if (*left == 0 || --*left > 0)
		return 0;
	failed = 1;
	return 1;
}

/* Does the server ask for what it must get?  Then the next request fails. */
static int
is_spared(void)
{
	void	   *frames[32];
	int			n = backtrace(frames, lengthof(frames));
	Dl_info		info;

	for (int i = 0; i < n; i++)
		if (dladdr(frames[i], &info) != 0 && info.dli_sname != NULL &&
			strcmp(info.dli_sname, "pgstat_get_entry_ref") == 0)
			return 1;
	return 0;
}

static int
memory_fails(void)
{
	return memory_left > 0 && !(memory_left == 1 && is_spared()) && fails(&memory_left);
}

static void *
no_memory(void)
{
	errno = ENOMEM;
	return NULL;
}

void *
malloc(size_t size)
{
	return memory_fails() ? no_memory() : __libc_malloc(size);
}

void *
realloc(void *pointer, size_t size)
{
	return memory_fails() ? no_memory() : __libc_realloc(pointer, size);
}

void *
calloc(size_t n, size_t size)
{
	return memory_fails() ? no_memory() : __libc_calloc(n, size);
}

/* Does it make a file of the database longer, and is that to fail? */
static int
disk_is_full(int fd, off_t end)
{
	char		link[64];
	char		path[1024];
	struct stat file;
	ssize_t		length;

	if (disk_left == 0 || fstat(fd, &file) != 0 || end <= file.st_size)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return 0;
	path[length] = '\0';
	if ((strstr(path, "/base/") == NULL && strstr(path, "/PG_") == NULL) || !fails(&disk_left))
		return 0;
	errno = ENOSPC;
	return 1;
}

static off_t
sum(const struct iovec *iov, int n)
{
	off_t		result = 0;

	for (int i = 0; i < n; i++)
		result += iov[i].iov_len;
	return result;
}

#define NEXT(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

ssize_t
pwrite(int fd, const void *data, size_t size, off_t offset)
{
	return disk_is_full(fd, offset + size) ? -1 : NEXT(pwrite) (fd, data, size, offset);
}

ssize_t
pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
	return disk_is_full(fd, offset + size) ? -1 : NEXT(pwrite64) (fd, data, size, offset);
}

ssize_t
pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	return disk_is_full(fd, offset + sum(iov, n)) ? -1 : NEXT(pwritev) (fd, iov, n, offset);
}

ssize_t
pwritev64(int fd, const struct iovec *iov, int n, off64_t offset)
{
	return disk_is_full(fd, offset + sum(iov, n)) ? -1 : NEXT(pwritev64) (fd, iov, n, offset);
}

int
posix_fallocate(int fd, off_t offset, off_t size)
{
	return disk_is_full(fd, offset + size) ? ENOSPC : NEXT(posix_fallocate) (fd, offset, size);
}

int
posix_fallocate64(int fd, off64_t offset, off64_t size)
{
	return disk_is_full(fd, offset + size) ? ENOSPC : NEXT(posix_fallocate64) (fd, offset, size);
}

PG_FUNCTION_INFO_V1(fault_arm);
PG_FUNCTION_INFO_V1(fault_disarm);

/* fault_arm(disk bool, n bigint) */
Datum
fault_arm(PG_FUNCTION_ARGS)
{
	/* (the first look at a stack asks for memory) */
	(void) is_spared();
	failed = 0;
	*(PG_GETARG_BOOL(0) ? &disk_left : &memory_left) = PG_GETARG_INT64(1);
	PG_RETURN_VOID();
}

/* Returns whether a request has failed. */
Datum
fault_disarm(PG_FUNCTION_ARGS)
{
	memory_left = disk_left = 0;
	PG_RETURN_BOOL(failed);
}
