/* Init and finalize. With `fence`: a fence in between. With `exit`: no finalize. With `never`: no init. */
#include "check.h"

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "never") == 0)
        return 0;
    begin();
    if (argc > 1 && strcmp(argv[1], "fence") == 0)
        MUST(fence(false));
    if (argc > 1 && strcmp(argv[1], "exit") == 0)
        return 0;
    finish();
    return 0;
}
