// prun_shim.so, loaded before `prterun --dvm` of PRRTE 3.0 by LD_PRELOAD: opens the framework that holds the list of
// forwarded signals, as the program `prun` does (src/tools/prun/prun.c); without it the list is used before it exists.
#define _GNU_SOURCE
#include <dlfcn.h>

// src/prted/prted.h: prun_common(results, schizo, argc, argv)
typedef int prun_fn(void *, void *, int, char **);
// src/mca/base/pmix_mca_base_framework.h of PMIx: pmix_mca_base_framework_open(framework, flags)
typedef int open_fn(void *, int);

int prun_common(void *results, void *schizo, int argc, char **argv) {
    void *framework = dlsym(RTLD_DEFAULT, "prte_ess_base_framework");
    open_fn *open = (open_fn *)dlsym(RTLD_DEFAULT, "pmix_mca_base_framework_open");
    prun_fn *next = (prun_fn *)dlsym(RTLD_NEXT, "prun_common");
    if (framework && open) open(framework, 0);
    return next ? next(results, schizo, argc, argv) : 1;
}
