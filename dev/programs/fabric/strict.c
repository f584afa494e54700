/* A provider of libfabric for tests: reliable messages over unix sockets of this host, with the demands of devices that libfabric's own `tcp`
 * does not have. Memory is registered, and contexts are the provider's; few sends are under way, and some find no room; some receives fail,
 * and so do sends to a process that has exited. A demand that is not met ends the process. */
#include <errno.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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
    struct fid_cq cq;
    struct fid_ep ep;
    struct fid_mr regions[2];
    char *memory[2];
    size_t lens[2];
    struct queue sent, posted, received;
    /* Names that the kernel has chosen, all of one length. */
    struct sockaddr_un peers[PEERS];
    socklen_t name_len;
    size_t peers_count;
    int socket, open, is_enabled;
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
    ssize_t sent = sendto(all->socket, buffer, len, MSG_DONTWAIT, (struct sockaddr *)&all->peers[to], all->name_len);
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS))
        return -FI_EAGAIN;
    push(&all->sent, NULL, context, len, sent < 0);
    return 0;
}

static ssize_t post_receive(struct fid_ep *ep, void *buffer, size_t len, void *desc, fi_addr_t from, void *context) {
    struct all *all = of(ep);
    check(all, 1, buffer, len, desc, context);
    DEMAND(len == LEN_MAX && from == FI_ADDR_UNSPEC);
    if (all->posted.count + all->received.count == RECEIVES)
        return -FI_EAGAIN;
    push(&all->posted, buffer, context, len, 0);
    return 0;
}

/* What finds no posted receive stays in the socket. */
static void progress(struct all *all) {
    while (all->posted.count) {
        size_t at = all->posted.first;
        char *buffer = all->posted.at[at].buffer;
        int fails = ++all->turn % 37 == 0;
        ssize_t got = fails ? 0 : recv(all->socket, buffer, LEN_MAX, MSG_DONTWAIT);
        if (got < 0)
            return;
        pop(&all->posted);
        push(&all->received, buffer, all->posted.at[at].context, (size_t)got, fails);
    }
}

static struct queue *completed(struct all *all) {
    return all->sent.count ? &all->sent : &all->received;
}

static ssize_t queue_read(struct fid_cq *cq, void *entries, size_t count) {
    struct all *all = of(cq);
    struct fi_cq_msg_entry *entry = entries;
    DEMAND(count == 1);
    progress(all);
    struct queue *queue = completed(all);
    if (!queue->count)
        return -FI_EAGAIN;
    if (queue->at[queue->first].failed)
        return -FI_EAVAIL;
    size_t at = pop(queue);
    entry->op_context = queue->at[at].context, entry->len = queue->at[at].len;
    return 1;
}

static ssize_t queue_error(struct fid_cq *cq, struct fi_cq_err_entry *entry, uint64_t flags) {
    struct queue *queue = completed(of(cq));
    DEMAND(flags == 0 && queue->count && !entry->err_data_size);
    entry->op_context = queue->at[pop(queue)].context;
    entry->err = FI_EIO;
    return 1;
}

static int try_wait(struct fid_fabric *fabric, struct fid **fids, int count) {
    struct all *all = of(fabric);
    DEMAND(count == 1 && fids[0] == &all->cq.fid);
    progress(all);
    return completed(all)->count ? -FI_EAGAIN : 0;
}

static int insert(struct fid_av *av, const void *address, size_t count, fi_addr_t *number, uint64_t flags, void *context) {
    struct all *all = of(av);
    (void)flags, (void)context;
    DEMAND(count == 1 && all->peers_count < PEERS);
    memcpy(&all->peers[all->peers_count], address, all->name_len);
    *number = all->peers_count++;
    return 1;
}

static int name(fid_t fid, void *address, size_t *len) {
    socklen_t room = *len;
    int result = getsockname(of(fid)->socket, address, &room);
    *len = of(fid)->name_len = room;
    return result;
}

static int control(struct fid *fid, int command, void *value) {
    struct all *all = of(fid);
    if (fid == &all->ep.fid && command == FI_ENABLE) {
        all->is_enabled = 1;
        return 0;
    }
    DEMAND(fid == &all->cq.fid && command == FI_GETWAIT);
    *(int *)value = all->socket;
    return 0;
}

static int bind_to(struct fid *fid, struct fid *other, uint64_t flags) {
    struct all *all = of(fid);
    DEMAND(fid == &all->ep.fid && !all->is_enabled && of(other) == all);
    DEMAND(other == &all->av.fid || flags == (FI_SEND | FI_RECV));
    return 0;
}

/* Objects are closed after those that use them. */
static int close_one(struct fid *fid) {
    struct all *all = of(fid);
    if (fid == &all->ep.fid) {
        all->is_enabled = 0;
        close(all->socket);
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
    DEMAND(attr->format == FI_CQ_FORMAT_MSG && attr->size == SENDS + RECEIVES && attr->wait_obj == FI_WAIT_FD);
    *cq = &of(domain)->cq;
    (*cq)->ops = &cq_ops;
    begin(of(domain), &(*cq)->fid, FI_CLASS_CQ);
    return 0;
}

static int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context) {
    struct all *all = of(domain);
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    (void)info, (void)context;
    all->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    DEMAND(!bind(all->socket, (struct sockaddr *)&any, sizeof any.sun_family));
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
    uint64_t modes = FI_CONTEXT2;
    (void)version, (void)node, (void)service, (void)flags;
    if (!hints || (hints->mode & modes) != modes || !(hints->domain_attr->mr_mode & FI_MR_LOCAL) || hints->ep_attr->type != FI_EP_RDM)
        return -FI_ENODATA;
    DEMAND(hints->tx_attr->msg_order == FI_ORDER_SAS && hints->rx_attr->msg_order == FI_ORDER_SAS);
    DEMAND(hints->domain_attr->resource_mgmt == FI_RM_ENABLED);
    struct fi_info *one = fi_allocinfo();
    one->caps = one->tx_attr->caps = one->rx_attr->caps = FI_MSG;
    one->mode = one->rx_attr->mode = one->tx_attr->mode = modes;
    one->tx_attr->size = SENDS, one->rx_attr->size = RECEIVES;
    one->ep_attr->type = FI_EP_RDM, one->ep_attr->protocol = FI_PROTO_IB_RDM;
    one->ep_attr->max_msg_size = LEN_MAX;
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
