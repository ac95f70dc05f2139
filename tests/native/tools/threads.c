/*
 * threads MODE: a thread holds /dev/full open. MODE is "alone", where the first thread ends, or "apart", where
 * the other one has its own descriptor table.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

static void *hold_device(void *mode)
{
    if (strcmp(mode, "apart") == 0)
        unshare(CLONE_FILES);
    dup2(open("/dev/full", O_RDWR), 9);
    sleep(60);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc != 2 || pthread_create(&thread, NULL, hold_device, argv[1]) != 0)
        return 1;
    if (strcmp(argv[1], "alone") == 0)
        pthread_exit(NULL);
    sleep(60);
    return 0;
}
