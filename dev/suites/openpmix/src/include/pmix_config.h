/* What OpenPMIx's configure would find on 64-bit Linux, as far as the headers need it that its test programs include. */
#ifndef PMIX_CONFIG_H
#define PMIX_CONFIG_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#define PMIX_HAVE_LIBEVENT 1
#define HAVE_STDBOOL_H 1
#define HAVE_UNISTD_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_WAIT_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_SOCKET_H 1
#define HAVE_NETINET_IN_H 1
#define HAVE_ARPA_INET_H 1
#define HAVE_FCNTL_H 1
#define HAVE_SIGNAL_H 1
#define HAVE_STRING_H 1
#define HAVE_TIME_H 1
#define HAVE_STDARG_H 1
#define PMIX_ENABLE_DEBUG 0
#define PMIX_HAVE_HWLOC 1
#define HAVE_INTTYPES_H 1
#define HAVE_STDINT_H 1
#define HAVE_INTPTR_T 1
#define HAVE_UINTPTR_T 1
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_INT 4
#define SIZEOF_LONG 8
#define PMIX_PTRDIFF_TYPE ptrdiff_t
#define PMIX_VERSION "4.2.2"
#include <stddef.h>
#include "src/include/pmix_config_bottom.h"
#endif
