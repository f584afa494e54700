// pmi_init SIZE: init, barrier, finalize, and nothing else.
#include "pmi1.h"

int main(int argc, char **argv) {
    if (argc != 2) pmi_die(2, "usage: pmi_init SIZE");
    pmi_init(atoi(argv[1]));
    pmi_barrier();
    pmi_finalize();
    _exit(0);
}
