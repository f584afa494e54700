// The variables in which from_exec.c hands on what it has noted.
#define EXEC_NS "WIREUP_BENCH_EXEC_NS"
#define WAITED_NS "WIREUP_BENCH_WAITED_NS"
