/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millraced/call_filter.h"

#include <errno.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/asan.h"

#if defined(BASE_ASAN) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

/* System calls that are allowed, with the reason. A call that is in neither list is answered with
 * ENOSYS, as by a kernel that does not have it. */
static const struct {
    const char *reason;
    const char *calls; /* calls that a machine or libseccomp does not have are skipped */
} allowed[] = {
    {"descriptors of all kinds",
     "read readv write writev close close_range dup dup2 dup3 fcntl ioctl pipe pipe2 lseek"},
    {"sockets of LNDs, ports, RPC, the log and RDMA's netlink",
     "socket socketpair bind listen accept accept4 connect shutdown getsockname getpeername "
     "getsockopt setsockopt sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg"},
    {"loops and timers",
     "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait "
     "epoll_pwait2 eventfd eventfd2 signalfd4 timerfd_create timerfd_settime timerfd_gettime "
     "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times"},
    {"configuration, log files, /sys and /proc, device files of RDMA",
     "open openat openat2 stat fstat lstat newfstatat statx access faccessat faccessat2 readlink "
     "readlinkat getdents64 getcwd pread64 pwrite64 statfs fstatfs flock fsync fdatasync ftruncate "
     "fallocate umask rename renameat renameat2 unlink unlinkat mkdir mkdirat rmdir chmod fchmod "
     "fchmodat chown lchown fchown fchownat utimensat inotify_init1 inotify_add_watch inotify_rm_watch"},
    {"memory of the heap, DPDK, RDMA devices and packet sockets",
     "brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 munlock mlockall munlockall "
     "mbind get_mempolicy set_mempolicy move_pages memfd_create membarrier"},
    {"threads: their start and end, waiting, cores",
     "futex futex_waitv set_robust_list get_robust_list rseq set_tid_address gettid getcpu "
     "sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler "
     "sched_setscheduler sched_get_priority_max sched_get_priority_min prctl arch_prctl exit "
     "exit_group restart_syscall"},
    {"signals, those that a thread sends to its process included",
     "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend "
     "sigaltstack tgkill"},
    {"looking at the process and the system",
     "getpid getppid getuid geteuid getgid getegid getresuid getresgid getgroups capget getrusage "
     "getrlimit setrlimit prlimit64 sysinfo uname getrandom getpriority"},
#ifdef SANITIZED
    {"the leak checker attaches to the process at its end; reports ask a program for names",
     "clone fork vfork execve wait4 ptrace kill tkill process_vm_readv set_thread_area getpgrp getdents "
     "setsid"},
#endif
};

/* System calls that are refused with EPERM, though libraries may have a use for them: they start
 * programs, look into other processes, or change the machine. */
static const char refused[] =
    "execve execveat fork vfork ptrace process_vm_readv process_vm_writev pidfd_open pidfd_getfd "
    "kill tkill mount umount2 pivot_root chroot move_mount open_tree fsopen fsmount fsconfig fspick "
    "mount_setattr kexec_load kexec_file_load init_module finit_module delete_module setns unshare "
    "bpf keyctl add_key request_key perf_event_open reboot swapon swapoff settimeofday "
    "clock_settime clock_adjtime adjtimex iopl ioperm userfaultfd acct quotactl setuid setgid "
    "setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset sethostname "
    "setdomainname syslog name_to_handle_at open_by_handle_at mknod mknodat vhangup personality "
    "io_uring_setup io_uring_enter io_uring_register";

/* Adds a rule for each call of a list, except those that have one already. */
static int add_all(scmp_filter_ctx filter, const char *calls, uint32_t action)
{
    char *list = strdup(calls), *rest = list, *one;
    int rc = list ? 0 : -ENOMEM;

    while (rc == 0 && (one = strsep(&rest, " "))) {
        int number = seccomp_syscall_resolve_name(one);

        if (number == __NR_SCMP_ERROR)
            continue;
        rc = seccomp_rule_add(filter, action, number, 0);
        if (rc == -EDOM || rc == -EOPNOTSUPP) /* not on this machine */
            rc = 0;
    }
    free(list);
    return rc;
}

static bool is_allowed(const char *call)
{
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
        for (const char *at = allowed[i].calls; *at; at += strcspn(at, " "), at += *at == ' ')
            if (strncmp(at, call, strlen(call)) == 0 && strcspn(at, " ") == strlen(call))
                return true;
    return false;
}

static int refuse_all(scmp_filter_ctx filter)
{
    char *list = strdup(refused), *rest = list, *one;
    int rc = list ? 0 : -ENOMEM;

    while (rc == 0 && (one = strsep(&rest, " ")))
        if (!is_allowed(one)) /* a sanitizer needs some */
            rc = add_all(filter, one, SCMP_ACT_ERRNO(EPERM));
    free(list);
    return rc;
}

static int fill(scmp_filter_ctx filter, enum cfg_seccomp mode)
{
    int rc = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);

    if (rc == 0 && mode == CFG_SECCOMP_ON)
        seccomp_attr_set(filter, SCMP_FLTATR_CTL_LOG, 1); /* a kernel without it does not log */
    for (size_t i = 0; rc == 0 && i < sizeof(allowed) / sizeof(allowed[0]); i++)
        rc = add_all(filter, allowed[i].calls, SCMP_ACT_ALLOW);
#ifndef SANITIZED
    if (rc == 0) /* threads, no processes */
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
#endif
    /* Its flags are in memory, where no filter sees them: libraries then use clone. */
    if (rc == 0)
        rc = seccomp_rule_add(filter,
                              mode == CFG_SECCOMP_LOG ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(ENOSYS),
                              SCMP_SYS(clone3), 0);
    if (rc == -EACCES) /* equal to the default */
        rc = 0;
    if (rc == 0 && mode == CFG_SECCOMP_ON)
        rc = refuse_all(filter);
    return rc;
}

int call_filter_start(enum cfg_seccomp mode, struct err *err)
{
    scmp_filter_ctx filter;
    int rc;

    if (mode == CFG_SECCOMP_OFF)
        return 0;
    filter = seccomp_init(mode == CFG_SECCOMP_LOG ? SCMP_ACT_LOG : SCMP_ACT_ERRNO(ENOSYS));
    rc = filter ? fill(filter, mode) : -ENOMEM;
    if (rc == 0)
        rc = seccomp_load(filter);
    seccomp_release(filter);
    if (rc == 0)
        return 0;
    return err_set(err, rc,
                   "the filter of system calls cannot be set: %s; write millrace: seccomp: off to "
                   "run without it",
                   strerror(-rc));
}
