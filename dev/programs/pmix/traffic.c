/* traffic [BYTES]: put, commit, a fence that collects data, gets of the data of both neighbours, a fence, so that the traffic between
   agents can be checked. */
#include "check.h"

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? (size_t)atoi(argv[1]) : 100;

    begin();
    put("traffic", 0, bytes);
    MUST(PMIx_Commit());
    MUST(fence(true));
    get((me.rank + size - 1) % size, "traffic", 0, bytes);
    get((me.rank + 1) % size, "traffic", 0, bytes);
    MUST(fence(false));
    finish();
    return 0;
}
