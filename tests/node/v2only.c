/*
 * v2only.so: whoever loads it reads no line of cgroup v1 in /proc/PID/cgroup.
 *
 * slurmd calls a node hybrid where that file has such lines, and does not start. A node of the tests
 * has them from the machine's kernel, although no v1 hierarchy is mounted in it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int describes_cgroups(const char *path)
{
	const char *name = strrchr(path, '/');

	return !strncmp(path, "/proc/", 6) && !strcmp(name, "/cgroup");
}

/* A stream without a file would do for fopen, but open needs a descriptor. */
static int without_v1(const char *path)
{
	FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
	FILE *all = real(path, "re");
	char line[4096];
	int kept;

	if (!all)
		return -1;
	kept = memfd_create("cgroup", MFD_CLOEXEC);
	while (kept >= 0 && fgets(line, sizeof line, all))
		if (!strncmp(line, "0::", 3) && write(kept, line, strlen(line)) < 0)
			break;
	fclose(all);
	if (kept >= 0)
		lseek(kept, 0, SEEK_SET);
	return kept;
}

static int opened(const char *symbol, const char *path, int flags, mode_t mode)
{
	int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, symbol);

	return describes_cgroups(path) ? without_v1(path) : real(path, flags, mode);
}

static FILE *streamed(const char *symbol, const char *path, const char *mode)
{
	FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, symbol);
	int file;

	if (!describes_cgroups(path))
		return real(path, mode);
	file = without_v1(path);
	return file < 0 ? NULL : fdopen(file, "r");
}

#define OPENS(name)                                        \
	int name(const char *path, int flags, ...)         \
	{                                                  \
		va_list more;                              \
		mode_t mode;                               \
                                                           \
		va_start(more, flags);                     \
		mode = va_arg(more, mode_t);               \
		va_end(more);                              \
		return opened(#name, path, flags, mode);   \
	}

OPENS(open)
OPENS(open64)

FILE *fopen(const char *path, const char *mode)
{
	return streamed("fopen", path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	return streamed("fopen64", path, mode);
}
