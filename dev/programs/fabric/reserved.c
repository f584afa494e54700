/* Every rank sends a message to every other one by libfabric's tcp provider. No address is exchanged: each rank's endpoint is on the port
 * that was reserved for it, and the others compute that address. Without an argument the program binds the address itself; "range": it
 * leaves that to FI_TCP_PORT_LOW_RANGE and FI_TCP_PORT_HIGH_RANGE in its environment. */
#include "../libpmi/check.h"
#include "wireup.h"
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#define RANKS_MAX 64

static struct sockaddr_storage addresses[RANKS_MAX];
static struct fid_ep *endpoint;
static struct fid_cq *queue;
static struct fid_av *vector;

static uint16_t port_of(const struct sockaddr_storage *address) {
    return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

static void *copy(const void *bytes, size_t len) {
    return memcpy(malloc(len), bytes, len);
}

/* An endpoint for reliable messages, at this address. */
static void open_endpoint(const struct sockaddr_storage *own, uint32_t len, int by_range) {
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
    hints->addr_format = own->ss_family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
    struct sockaddr_storage *source = copy(own, sizeof *own);
    if (by_range)
        ((struct sockaddr_in *)source)->sin_port = 0;
    hints->src_addr = source;
    hints->src_addrlen = len;
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
    IS(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    IS(fi_domain(fabric, info, &domain, NULL), 0);
    struct fi_cq_attr of_queue = {.format = FI_CQ_FORMAT_MSG, .size = 4 * RANKS_MAX};
    struct fi_av_attr of_vector = {.type = FI_AV_TABLE};
    IS(fi_cq_open(domain, &of_queue, &queue, NULL), 0);
    IS(fi_av_open(domain, &of_vector, &vector, NULL), 0);
    IS(fi_endpoint(domain, info, &endpoint, NULL), 0);
    IS(fi_ep_bind(endpoint, &vector->fid, 0), 0);
    IS(fi_ep_bind(endpoint, &queue->fid, FI_SEND | FI_RECV), 0);
    IS(fi_enable(endpoint), 0);
    struct sockaddr_storage name;
    size_t room = sizeof name;
    IS(fi_getname(&endpoint->fid, &name, &room), 0);
    IS(port_of(&name), port_of(own));
    fi_freeinfo(hints);
    fi_freeinfo(info);
}

/* No other program gets the port, unless it asks for it by its number and with SO_REUSEADDR. */
static void port_is_taken(const struct sockaddr_storage *own, uint32_t len) {
    int other = socket(own->ss_family, SOCK_STREAM, 0);
    IS(bind(other, (const struct sockaddr *)own, len), -1);
    IS(errno, EADDRINUSE);
    IS(close(other), 0);
}

int main(int argc, char **argv) {
    wu_ctx *ctx;
    wu_group *world;
    wu_group_info_t info = {.struct_size = sizeof info};
    int by_range = argc > 1 && !strcmp(argv[1], "range");
    IS(wu_open(WU_API, NULL, &ctx), WU_OK);
    IS(wu_group_world(ctx, &world), WU_OK);
    IS(wu_group_info(world, &info), WU_OK);
    uint32_t me = info.rank, size = info.size, len = 0;
    IS(size <= RANKS_MAX, 1);
    for (uint32_t rank = 0; rank < size; rank++) {
        len = sizeof addresses[rank];
        IS(wu_listen_address(ctx, rank, &addresses[rank], &len), WU_OK);
    }
    IS(atoi(getenv("WIREUP_LISTEN_PORT")), port_of(&addresses[me]));
    IS(wu_listen_fd(ctx) >= 0, 1);
    port_is_taken(&addresses[me], len);

    open_endpoint(&addresses[me], len, by_range);
    fi_addr_t to[RANKS_MAX];
    uint32_t arrived[RANKS_MAX], waits = size - 1, sending = size - 1, sum = 0;
    struct fi_context contexts[2 * RANKS_MAX];
    for (uint32_t rank = 0; rank < size; rank++) {
        IS(fi_av_insert(vector, &addresses[rank], 1, &to[rank], 0, NULL), 1);
        if (rank != me)
            IS(fi_recv(endpoint, &arrived[rank], sizeof me, NULL, FI_ADDR_UNSPEC, &contexts[rank]), 0);
    }
    /* While an endpoint is not there yet, libfabric dials it again, and the send is to be repeated. */
    uint8_t is_begun[RANKS_MAX] = {0};
    while (waits || sending) {
        for (uint32_t rank = 0; rank < size; rank++)
            if (rank != me && !is_begun[rank]) {
                ssize_t result = fi_send(endpoint, &me, sizeof me, NULL, to[rank], &contexts[RANKS_MAX + rank]);
                IS(result == 0 || result == -FI_EAGAIN, 1);
                is_begun[rank] = result == 0;
            }
        struct fi_cq_msg_entry entry;
        ssize_t result = fi_cq_read(queue, &entry, 1);
        if (result == 1 && entry.flags & FI_RECV)
            waits--;
        else if (result == 1)
            sending--;
        else
            IS(result, -FI_EAGAIN);
    }
    for (uint32_t rank = 0; rank < size; rank++)
        sum += rank == me ? me : arrived[rank];
    IS(sum, size * (size - 1) / 2);
    /* libwireup's own network works beside that, and answers others until all are done. */
    wu_req *all;
    IS(wu_barrier(world, &all), WU_OK);
    for (int is_over = 0; !is_over;) {
        struct fi_cq_msg_entry entry;
        IS(fi_cq_read(queue, &entry, 1), -FI_EAGAIN);
        IS(wu_test(all, &is_over), WU_OK);
    }
    uint32_t rows[RANKS_MAX] = {0};
    wu_group *own;
    IS(wu_group_dup(world, &own), WU_OK);
    IS(wu_alltoall(own, rows, sizeof me, rows, NULL), WU_OK);
    IS(wu_group_free(own), WU_OK);
    IS(wu_group_free(world), WU_OK);
    IS(wu_close(ctx), WU_OK);
    printf("%u of %u: all right\n", me, size);
    return 0;
}
