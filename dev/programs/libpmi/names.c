/* The last rank does with names of libwireup what the arguments say, in order, and prints the results: publish NAME VALUE, lookup
 * NAME, unpublish NAME, await NAME, await-gone NAME, fill (publishes until that is refused). */
#include "check.h"
#include "wireup.h"
#include <unistd.h>

static const char *word(int code)
{
    return code == WU_OK ? "ok" : code == WU_ERR_EXISTS ? "taken" : code == WU_ERR_NOT_FOUND ? "not found" :
           code == WU_ERR_SERVER ? "refused" : "?";
}

static void fill(wu_ctx *ctx)
{
    char name[1024], value[1024];
    int count = 0, code;

    memset(value, 'v', 1023);
    memset(name, 'n', 1023);
    value[1023] = name[1023] = 0;
    do {
        int length = sprintf(name, "%d-", count);
        name[length] = 'n';
        code = wu_publish(ctx, name, value);
        count += code == WU_OK;
    } while (code == WU_OK);
    printf("%s after %s\n", word(code), count > 7000 && count < 9000 ? "16 MiB" : "a wrong number");
}

int main(int argc, char **argv)
{
    wu_ctx *ctx;
    char value[1024];
    int code;

    wu_group *world;
    wu_group_info_t its = {.struct_size = sizeof its};
    IS(wu_open(WU_API, NULL, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &its), WU_OK);
    for (int at = 1; at < argc && its.rank == its.size - 1; at++) {
        const char *what = argv[at], *name = at + 1 < argc ? argv[at + 1] : "";
        if (strcmp(what, "fill") == 0) {
            fill(ctx);
            continue;
        }
        at++;
        if (strcmp(what, "publish") == 0)
            printf("publish %s: %s\n", name, word(wu_publish(ctx, name, argv[++at])));
        else if (strcmp(what, "unpublish") == 0)
            printf("unpublish %s: %s\n", name, word(wu_unpublish(ctx, name)));
        else if (strcmp(what, "lookup") == 0)
            printf("%s is %s\n", name, (code = wu_lookup(ctx, name, value, sizeof value)) ? word(code) : value);
        else {
            int wanted = strcmp(what, "await") == 0 ? WU_OK : WU_ERR_NOT_FOUND;
            while ((code = wu_lookup(ctx, name, value, sizeof value)) != wanted) {
                IS(code, wanted == WU_OK ? WU_ERR_NOT_FOUND : WU_OK);
                usleep(10000);
            }
        }
        fflush(stdout);
    }
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    return 0;
}
