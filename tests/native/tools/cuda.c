/*
 * cuda: initialises the driver's library of CUDA, without a toolkit, and prints how many GPUs it shows and their PCI
 * addresses, or what failed. The exit status is 0 if the library could be asked, also if it shows no GPU.
 */
#include <dlfcn.h>
#include <stdio.h>

typedef int (*init_function)(unsigned int flags);
typedef int (*count_function)(int *count);
typedef int (*address_function)(char *address, int bytes, int device);

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("cuda: %s\n", dlerror());
        return 1;
    }
    init_function init = (init_function)dlsym(library, "cuInit");
    count_function count_devices = (count_function)dlsym(library, "cuDeviceGetCount");
    address_function get_address = (address_function)dlsym(library, "cuDeviceGetPCIBusId");
    if (!init || !count_devices || !get_address) {
        puts("cuda: the library lacks a function");
        return 1;
    }
    int code = init(0);
    int count = 0;
    if (code == 0)
        code = count_devices(&count);
    if (code != 0) {
        printf("cuda: no GPU, error %d\n", code);
        return 0;
    }
    printf("cuda: %d GPUs", count);
    for (int device = 0; device < count; device++) {
        char address[32] = "";
        if (get_address(address, sizeof address, device) == 0)
            printf(" %s", address);
    }
    puts("");
    return 0;
}
