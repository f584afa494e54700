/* Rank 0 asks for another program, which is refused. */
#include "check.h"

int main(void)
{
    begin();
    if (me.rank == 0) {
        pmix_app_t *app;
        char nspace[PMIX_MAX_NSLEN + 1];

        PMIX_APP_CREATE(app, 1);
        app->cmd = strdup("/bin/true");
        app->maxprocs = 1;
        EXPECT(PMIX_ERR_NOT_SUPPORTED, PMIx_Spawn(NULL, 0, app, 1, nspace));
    }
    MUST(fence(false));
    finish();
    return 0;
}
