// Hand-written PMI-2 on PMI_FD, as used by clients without extensions: one message and its answer at a time, one get
// for each key.
static int text_fd = -1;
static char text_buf[8192];
static size_t text_len;

static void text_send(const char *body, int len) {
    char message[2048];
    int all = snprintf(message, sizeof message, "%6d%.*s", len, len, body), sent = 0;
    while (sent < all) {
        ssize_t n = write(text_fd, message + sent, all - sent);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail("cannot write to the server", errno);
        sent += n;
    }
}

// The next message, terminated by a NUL; valid until the next call.
static char *text_receive(void) {
    size_t wanted = 6;
    for (text_len = 0; text_len < wanted;) {
        ssize_t n = read(text_fd, text_buf + text_len, sizeof text_buf - 1 - text_len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail("the server closed the link", errno);
        text_len += n;
        if (text_len >= 6 && wanted == 6) wanted = 6 + strtoul((char[7]){text_buf[0], text_buf[1], text_buf[2],
            text_buf[3], text_buf[4], text_buf[5], 0}, NULL, 10);
        if (wanted > sizeof text_buf - 1) fail("too long an answer", wanted);
    }
    if (text_len != wanted) fail("more than one answer", text_len);
    text_buf[text_len] = 0;
    return text_buf + 6;
}

// Sends one request; its answer must be `expect` with rc=0.
__attribute__((format(printf, 2, 3))) static char *text_ask(const char *expect, const char *format, ...) {
    char body[1024];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(body, sizeof body, format, args);
    va_end(args);
    text_send(body, len);
    char *answer = text_receive();
    if (strncmp(answer, expect, strlen(expect)) || !strstr(answer, ";rc=0;")) {
        fprintf(stderr, "startup: expected %s, got %s\n", expect, answer);
        fail(complaint_about, 0);
    }
    return answer;
}

static void text_put(const char *key, const char *value) {
    text_ask("cmd=kvs-put-response;", "cmd=kvs-put;key=%s;value=%s;", key, value);
}

static void text_fence(void) { text_ask("cmd=kvs-fence-response;", "cmd=kvs-fence;"); }

static void text_get(const char *key, char *value, size_t room) {
    char *answer = text_ask("cmd=kvs-get-response;", "cmd=kvs-get;key=%s;", key);
    char *at = strstr(answer, ";value=");
    if (!at) fail("an answer without a value", 0);
    at += strlen(";value=");
    size_t len = strcspn(at, ";");
    if (len >= room) fail("too long a value", len);
    memcpy(value, at, len);
    value[len] = 0;
}
