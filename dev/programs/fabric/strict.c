/* A provider of libfabric for tests: datagrams over UDP of this host, with the demands of devices that libfabric's own `udp` does not have.
 * Memory is registered; received datagrams have a prefix, and contexts are the provider's; few sends are under way, and some find no room;
 * what arrives while no receive is posted is lost; some receives fail, and some are packets without data. A demand that is not met ends
 * the process. */
#include <arpa/inet.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PREFIX 40
#define LEN_MAX 2048
#define SENDS 4
#define RECEIVES 64
#define PEERS 256

#define DEMAND(condition)                                                     \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                          \
        }                                                                     \
    } while (0)

struct queue {
    struct {
        char *buffer;
        void *context;
        size_t len;
        int failed;
    } at[RECEIVES];
    size_t first, count;
};

/* All objects; `fid.context` of each points here. */
struct all {
    struct fid_fabric fabric;
    struct fid_domain domain;
    struct fid_av av;
    struct fid_cq queues[2];
    struct fid_ep ep;
    struct fid_mr regions[2];
    char *memory[2];
    size_t lens[2];
    struct queue sent, posted, received;
    struct sockaddr_in peers[PEERS];
    size_t peers_count;
    int socket, epoll, open, is_enabled;
    unsigned turn;
};

static struct all *of(const void *fid) {
    return ((const struct fid *)fid)->context;
}

static void push(struct queue *queue, char *buffer, void *context, size_t len, int failed) {
    size_t at = (queue->first + queue->count++) % RECEIVES;
    queue->at[at].buffer = buffer, queue->at[at].context = context;
    queue->at[at].len = len, queue->at[at].failed = failed;
}

static size_t pop(struct queue *queue) {
    size_t at = queue->first;
    queue->first = (at + 1) % RECEIVES, queue->count--;
    return at;
}

/* The context and the data of an operation lie in registered memory, and the provider writes to the context. */
static void check(struct all *all, int way, const char *buffer, size_t len, void *desc, char *context) {
    DEMAND(all->is_enabled && desc == &all->regions[way]);
    DEMAND(buffer >= all->memory[way] && buffer + len <= all->memory[way] + all->lens[way]);
    DEMAND(context >= all->memory[way] && context + sizeof(struct fi_context2) <= buffer);
    memset(context, 0xee, sizeof(struct fi_context2));
}

static ssize_t post_send(struct fid_ep *ep, const void *buffer, size_t len, void *desc, fi_addr_t to, void *context) {
    struct all *all = of(ep);
    check(all, 0, buffer, len, desc, context);
    DEMAND(len <= LEN_MAX && to < all->peers_count);
    if (all->sent.count == SENDS || ++all->turn % 10 == 0)
        return -FI_EAGAIN;
    sendto(all->socket, buffer, len, 0, (struct sockaddr *)&all->peers[to], sizeof all->peers[to]);
    push(&all->sent, NULL, context, len, 0);
    return 0;
}

static ssize_t post_receive(struct fid_ep *ep, void *buffer, size_t len, void *desc, fi_addr_t from, void *context) {
    struct all *all = of(ep);
    check(all, 1, buffer, len, desc, context);
    DEMAND(len == PREFIX + LEN_MAX && from == FI_ADDR_UNSPEC);
    if (all->posted.count + all->received.count == RECEIVES)
        return -FI_EAGAIN;
    push(&all->posted, buffer, context, len, 0);
    return 0;
}

static void progress(struct all *all) {
    static char lost[PREFIX + LEN_MAX];
    for (;;) {
        size_t at = all->posted.count ? pop(&all->posted) : RECEIVES;
        char *buffer = at == RECEIVES ? lost : all->posted.at[at].buffer;
        ssize_t got = recv(all->socket, buffer + PREFIX, LEN_MAX, MSG_DONTWAIT);
        if (got < 0) {
            if (at != RECEIVES)
                all->posted.first = at, all->posted.count++;
            return;
        }
        if (at == RECEIVES)
            continue;
        memset(buffer, 0xaa, PREFIX);
        size_t len = ++all->turn % 31 == 0 ? PREFIX : PREFIX + (size_t)got;
        push(&all->received, buffer, all->posted.at[at].context, len, all->turn % 37 == 0);
    }
}

static ssize_t queue_read(struct fid_cq *cq, void *entries, size_t count) {
    struct all *all = of(cq);
    struct queue *queue = cq == &all->queues[0] ? &all->sent : &all->received;
    struct fi_cq_msg_entry *entry = entries;
    DEMAND(count == 1);
    if (queue == &all->received)
        progress(all);
    if (!queue->count)
        return -FI_EAGAIN;
    if (queue->at[queue->first].failed)
        return -FI_EAVAIL;
    size_t at = pop(queue);
    entry->op_context = queue->at[at].context, entry->len = queue->at[at].len;
    return 1;
}

static ssize_t queue_error(struct fid_cq *cq, struct fi_cq_err_entry *entry, uint64_t flags) {
    struct queue *queue = &of(cq)->received;
    DEMAND(flags == 0 && cq == &of(cq)->queues[1] && queue->count && !entry->err_data_size);
    entry->op_context = queue->at[pop(queue)].context;
    entry->err = FI_EIO;
    return 1;
}

static int try_wait(struct fid_fabric *fabric, struct fid **fids, int count) {
    struct all *all = of(fabric);
    DEMAND(count == 1 && fids[0] == &all->queues[1].fid);
    progress(all);
    return all->received.count ? -FI_EAGAIN : 0;
}

static int insert(struct fid_av *av, const void *address, size_t count, fi_addr_t *number, uint64_t flags, void *context) {
    struct all *all = of(av);
    (void)flags, (void)context;
    DEMAND(count == 1 && all->peers_count < PEERS);
    all->peers[all->peers_count] = *(const struct sockaddr_in *)address;
    *number = all->peers_count++;
    return 1;
}

static int name(fid_t fid, void *address, size_t *len) {
    socklen_t room = *len;
    int result = getsockname(of(fid)->socket, address, &room);
    *len = room;
    return result;
}

static int control(struct fid *fid, int command, void *value) {
    struct all *all = of(fid);
    if (fid == &all->ep.fid && command == FI_ENABLE) {
        all->is_enabled = 1;
        return 0;
    }
    DEMAND(fid == &all->queues[1].fid && command == FI_GETWAIT);
    *(int *)value = all->epoll;
    return 0;
}

static int bind_to(struct fid *fid, struct fid *other, uint64_t flags) {
    struct all *all = of(fid);
    DEMAND(fid == &all->ep.fid && !all->is_enabled && of(other) == all);
    DEMAND(other == &all->av.fid || flags == (other == &all->queues[0].fid ? FI_SEND : FI_RECV));
    return 0;
}

/* Objects are closed after those that use them. */
static int close_one(struct fid *fid) {
    struct all *all = of(fid);
    if (fid == &all->ep.fid) {
        all->is_enabled = 0;
        close(all->socket);
        close(all->epoll);
    }
    DEMAND(!all->is_enabled);
    if (fid == &all->fabric.fid) {
        DEMAND(all->open == 0);
        free(all);
        return 0;
    }
    all->open--;
    DEMAND(fid != &all->domain.fid || all->open == 0);
    return 0;
}

static struct fi_ops ops = {.size = sizeof ops, .close = close_one, .bind = bind_to, .control = control};
static struct fi_ops_av av_ops = {.size = sizeof av_ops, .insert = insert};
static struct fi_ops_cq cq_ops = {.size = sizeof cq_ops, .read = queue_read, .readerr = queue_error};
static struct fi_ops_cm cm_ops = {.size = sizeof cm_ops, .getname = name};
static struct fi_ops_msg msg_ops = {.size = sizeof msg_ops, .recv = post_receive, .send = post_send};

static void begin(struct all *all, struct fid *fid, size_t class) {
    fid->fclass = class, fid->context = all, fid->ops = &ops;
    all->open += fid != &all->fabric.fid;
}

static int open_av(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context) {
    (void)attr, (void)context;
    *av = &of(domain)->av;
    (*av)->ops = &av_ops;
    begin(of(domain), &(*av)->fid, FI_CLASS_AV);
    return 0;
}

static int open_queue(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context) {
    (void)context;
    DEMAND(attr->format == FI_CQ_FORMAT_MSG && attr->size > 0);
    *cq = &of(domain)->queues[attr->wait_obj == FI_WAIT_FD];
    (*cq)->ops = &cq_ops;
    begin(of(domain), &(*cq)->fid, FI_CLASS_CQ);
    return 0;
}

static int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context) {
    struct all *all = of(domain);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct epoll_event event = {.events = EPOLLIN};
    (void)info, (void)context;
    all->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    all->epoll = epoll_create1(EPOLL_CLOEXEC);
    DEMAND(!bind(all->socket, (struct sockaddr *)&any, sizeof any));
    DEMAND(!epoll_ctl(all->epoll, EPOLL_CTL_ADD, all->socket, &event));
    *ep = &all->ep;
    all->ep.cm = &cm_ops, all->ep.msg = &msg_ops;
    begin(all, &all->ep.fid, FI_CLASS_EP);
    return 0;
}

static int enlist(struct fid *fid, const void *memory, size_t len, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **mr, void *context) {
    struct all *all = of(fid);
    int way = access == FI_RECV;
    (void)offset, (void)flags, (void)context;
    DEMAND((access == FI_SEND || access == FI_RECV) && key == (uint64_t)way);
    all->memory[way] = (char *)memory, all->lens[way] = len;
    *mr = &all->regions[way];
    (*mr)->mem_desc = *mr;
    begin(all, &(*mr)->fid, FI_CLASS_MR);
    return 0;
}

static struct fi_ops_mr mr_ops = {.size = sizeof mr_ops, .reg = enlist};
static struct fi_ops_domain domain_ops = {.size = sizeof domain_ops, .av_open = open_av, .cq_open = open_queue, .endpoint = open_endpoint};

static int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context) {
    (void)info, (void)context;
    *domain = &of(fabric)->domain;
    (*domain)->ops = &domain_ops, (*domain)->mr = &mr_ops;
    begin(of(fabric), &(*domain)->fid, FI_CLASS_DOMAIN);
    return 0;
}

static struct fi_ops_fabric fabric_ops = {.size = sizeof fabric_ops, .domain = open_domain, .trywait = try_wait};

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context) {
    struct all *all = calloc(1, sizeof *all);
    (void)attr, (void)context;
    *fabric = &all->fabric;
    all->fabric.ops = &fabric_ops;
    begin(all, &all->fabric.fid, FI_CLASS_FABRIC);
    return 0;
}

static int list(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints, struct fi_info **info) {
    uint64_t modes = FI_MSG_PREFIX | FI_CONTEXT2;
    (void)version, (void)node, (void)service, (void)flags;
    if (!hints || (hints->mode & modes) != modes || !(hints->domain_attr->mr_mode & FI_MR_LOCAL) || hints->ep_attr->type != FI_EP_DGRAM)
        return -FI_ENODATA;
    struct fi_info *one = fi_allocinfo();
    one->caps = one->tx_attr->caps = one->rx_attr->caps = FI_MSG;
    one->mode = modes;
    one->rx_attr->mode = modes, one->tx_attr->mode = FI_CONTEXT2;
    one->addr_format = FI_SOCKADDR_IN;
    one->tx_attr->size = SENDS, one->rx_attr->size = RECEIVES;
    one->ep_attr->type = FI_EP_DGRAM, one->ep_attr->protocol = FI_PROTO_IB_UD;
    one->ep_attr->max_msg_size = LEN_MAX, one->ep_attr->msg_prefix_size = PREFIX;
    one->domain_attr->av_type = FI_AV_TABLE, one->domain_attr->mr_mode = FI_MR_LOCAL;
    one->domain_attr->name = strdup("strict"), one->fabric_attr->name = strdup("strict");
    *info = one;
    return 0;
}

static struct fi_provider provider = {
    .version = FI_VERSION(1, 0), .fi_version = FI_VERSION(1, 17), .name = "strict", .getinfo = list, .fabric = open_fabric};

FI_EXT_INI {
    return &provider;
}
