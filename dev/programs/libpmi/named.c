/* named NAME: opens a context with this name, and says how that went. */
#include "wireup.h"
#include <stdio.h>

int main(int argc, char **argv)
{
    wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_NAME, .name = argc > 1 ? argv[1] : "named"};
    wu_ctx *ctx;

    if (wu_open(WU_API, &params, &ctx) != WU_OK) {
        printf("not opened: %s\n", wu_error(NULL));
        return 1;
    }
    printf("opened\n");
    return wu_close(ctx) != WU_OK;
}
