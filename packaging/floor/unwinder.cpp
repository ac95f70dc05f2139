// zig's unwinder for C libraries before glibc 2.34, where dlsym(3) is in a library of its own: without this macro it
// finds the records of a function by dl_iterate_phdr(3) alone.
#include <link.h>
#undef DLFO_STRUCT_HAS_EH_DBASE
#include <libunwind.cpp>
