/* endpoints [FILE]: each rank finds where all ranks listen in the data of the job, without asking even its server, and connects to them.
   Then it accepts as many connections at the socket that it was started with. With a file, rank 0 makes it when it has connected.
   With `none`: the job has no such sockets. */
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define TEXT "wireup.listen_address"

/* `how`: NULL or an attribute that is set to true. */
static pmix_status_t look(uint32_t rank, const char *key, const char *how, pmix_value_t **value)
{
    pmix_proc_t proc = rank_of(rank);
    pmix_info_t info;
    bool yes = true;

    if (!how)
        return PMIx_Get(&proc, key, NULL, 0, value);
    PMIX_INFO_LOAD(&info, how, &yes, PMIX_BOOL);
    return PMIx_Get(&proc, key, &info, 1, value);
}

static void as_text(const struct sockaddr *address, char *text, size_t room)
{
    char host[INET6_ADDRSTRLEN];

    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        snprintf(text, room, "[%s]:%u", host, ntohs(six->sin6_port));
    } else {
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        snprintf(text, room, "%s:%u", host, ntohs(four->sin_port));
    }
}

static void connect_to(uint32_t rank, const char *how)
{
    pmix_value_t *text, *raw;
    char wanted[80];

    MUST(look(rank, TEXT, how, &text));
    MUST(look(rank, PMIX_FABRIC_ENDPT, how, &raw));
    CHECK(text->type == PMIX_STRING && raw->type == PMIX_DATA_ARRAY);
    CHECK(raw->data.darray->type == PMIX_BYTE_OBJECT && raw->data.darray->size > 0);
    pmix_byte_object_t *best = raw->data.darray->array;
    struct sockaddr_storage address;
    CHECK(best->size <= sizeof address);
    memcpy(&address, best->bytes, best->size);
    as_text((struct sockaddr *)&address, wanted, sizeof wanted);
    CHECK(strcmp(text->data.string, wanted) == 0);
    /* It stays open until the program ends. */
    int to = socket(address.ss_family, SOCK_STREAM, 0);
    CHECK(connect(to, (struct sockaddr *)&address, best->size) == 0);
    CHECK(write(to, &me.rank, sizeof me.rank) == sizeof me.rank);
    PMIX_VALUE_RELEASE(text);
    PMIX_VALUE_RELEASE(raw);
}

int main(int argc, char **argv)
{
    const char *how[] = {PMIX_OPTIONAL, PMIX_IMMEDIATE, NULL};
    const char *variable = getenv("WIREUP_LISTEN_FD");
    uint64_t sum = 0;
    pmix_value_t *value;

    begin();
    if (argc > 1 && strcmp(argv[1], "none") == 0) {
        CHECK(!variable && look(0, TEXT, PMIX_OPTIONAL, &value) == PMIX_ERR_NOT_FOUND);
        CHECK(look(0, PMIX_FABRIC_ENDPT, PMIX_OPTIONAL, &value) == PMIX_ERR_NOT_FOUND);
        finish();
        return 0;
    }
    CHECK(variable);
    for (uint32_t rank = 0; rank < size; rank++)
        connect_to(rank, how[(me.rank + rank) % 3]);
    CHECK(look(size, TEXT, PMIX_OPTIONAL, &value) != PMIX_SUCCESS);
    if (argc > 1 && me.rank == 0)
        CHECK(close(open(argv[1], O_WRONLY | O_CREAT, 0600)) == 0);
    for (uint32_t i = 0; i < size; i++) {
        uint32_t rank;
        int from = accept(atoi(variable), NULL, NULL);
        CHECK(read(from, &rank, sizeof rank) == sizeof rank);
        close(from);
        sum += rank;
    }
    CHECK(sum == (uint64_t)size * (size - 1) / 2);
    printf("rank %u: %u ranks have connected\n", me.rank, size);
    finish();
    return 0;
}
