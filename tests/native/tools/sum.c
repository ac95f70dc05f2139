/*
 * An Open MPI program that sums 1 over all ranks and prints the sum. It opens the library by name, since
 * nothing else here needs the headers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

static void *find_symbol(const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

int main(int argc, char **argv)
{
    int one = 1, sum = 0;
    library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*init)(int *, char ***) = find_symbol("MPI_Init");
    int (*allreduce)(void *, void *, int, void *, void *, void *) = find_symbol("MPI_Allreduce");
    int (*finalize)(void) = find_symbol("MPI_Finalize");
    if (init(&argc, &argv)
        || allreduce(&one, &sum, 1, find_symbol("ompi_mpi_int"), find_symbol("ompi_mpi_op_sum"), find_symbol("ompi_mpi_comm_world")))
        return 1;
    printf("sum %d\n", sum);
    return finalize();
}
