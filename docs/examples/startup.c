/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * How a communication library starts with PMIX_Iallgather: its initialisation gives away its own address and waits for nobody;
 * the first message to another process waits for the addresses, if they are not there yet.
 *
 *   cc startup.c -o startup $(pkg-config --cflags --libs wireup-pmi2)
 *   wireup run -n 16 ./startup
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pmix_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* "255.255.255.255:65535" and its end fit. */
enum { ADDRESS_LEN = 24 };

static struct {
    int rank, size, socket;
    /* Row r is the address of rank r: there once `pending` is NULL. */
    const char (*addresses)[ADDRESS_LEN];
    PMIX_Request pending;
} net;

static void check(int rc, const char *what) {
    if (rc != PMI2_SUCCESS) {
        char message[64];
        snprintf(message, sizeof message, "%s failed: %d", what, rc);
        PMI2_Abort(1, message);
    }
}

/* Opens the endpoint that others will write to, and says where it is. A network card's driver would be asked here. */
static void open_endpoint(char address[ADDRESS_LEN]) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof name;
    net.socket = socket(AF_INET, SOCK_DGRAM, 0);
    if (net.socket < 0 || bind(net.socket, (struct sockaddr *)&name, len) != 0 ||
        getsockname(net.socket, (struct sockaddr *)&name, &len) != 0)
        PMI2_Abort(1, "no endpoint");
    snprintf(address, ADDRESS_LEN, "%s:%d", inet_ntoa(name.sin_addr), ntohs(name.sin_port));
}

static void net_init(void) {
    int spawned, appnum;
    char address[ADDRESS_LEN];
    check(PMI2_Init(&spawned, &net.size, &net.rank, &appnum), "PMI2_Init");
    open_endpoint(address);
    check(PMIX_Iallgather_shared(address, ADDRESS_LEN, (const void **)&net.addresses, &net.pending), "PMIX_Iallgather_shared");
    /* Memory is registered, queues are made, files are read here: the addresses travel meanwhile. */
}

static const char *net_address(int rank) {
    if (net.pending) {
        check(PMIX_Wait(net.pending), "PMIX_Wait");
        net.pending = NULL;
    }
    return net.addresses[rank];
}

static void net_send(int rank, const void *data, size_t len) {
    struct sockaddr_in to = {.sin_family = AF_INET};
    char address[ADDRESS_LEN], *colon;
    memcpy(address, net_address(rank), ADDRESS_LEN);
    colon = strchr(address, ':');
    *colon = 0;
    to.sin_port = htons(atoi(colon + 1));
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1 ||
        sendto(net.socket, data, len, 0, (struct sockaddr *)&to, sizeof to) != (ssize_t)len)
        PMI2_Abort(1, "a message could not be sent");
}

static void net_receive(void *data, size_t len) {
    if (recv(net.socket, data, len, 0) != (ssize_t)len)
        PMI2_Abort(1, "no message");
}

static void net_finalize(void) {
    close(net.socket);
    /* Ends an allgather that nobody has waited for, and takes the addresses back. */
    check(PMI2_Finalize(), "PMI2_Finalize");
}

/* An application: a number goes around once. */
int main(void) {
    int token = 0;
    net_init();
    if (net.rank > 0)
        net_receive(&token, sizeof token);
    token++;
    net_send((net.rank + 1) % net.size, &token, sizeof token);
    if (net.rank == 0) {
        net_receive(&token, sizeof token);
        printf("the token was with %d of %d processes\n", token, net.size);
    }
    net_finalize();
    return 0;
}
