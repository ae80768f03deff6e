// What a hostile program tries inside. Each line of its output is one attempt and how it ended.
#include <errno.h>
#include <fcntl.h>
#include <linux/net.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void said(const char *what, long result) {
  printf("%s %s\n", what, result >= 0 ? "OK" : strerrorname_np(errno));
}

static void opens(const char *path, int flags) {
  int file = open(path, flags);
  said(path, file);
  if (file >= 0) close(file);
}

// In a child, since the kernel is expected to end it.
static void dies(const char *what, void (*attempt)(void)) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    attempt();
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  printf("%s %s\n", what, WIFSIGNALED(status) ? "KILLED" : "LIVED");
}

#ifdef __x86_64__
static void by_int80(void) {
  long result;
  // getpid of the 32-bit table.
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
}
static void by_x32(void) { syscall(0x40000000 | SYS_getpid); }
#endif

static void run_memory(void) {
  int file = syscall(SYS_memfd_create, "x", 0);
  int from = open("/bin/true", O_RDONLY);
  char buffer[65536];
  ssize_t length;
  while ((length = read(from, buffer, sizeof buffer)) > 0) write(file, buffer, length);
  char *argv[] = {"x", 0}, *envp[] = {0};
  syscall(SYS_execveat, file, "", argv, envp, AT_EMPTY_PATH);
  _exit(1);
}

int main(void) {
  // The outside by links of /proc.
  opens("/proc/1/root/etc", O_RDONLY);
  opens("/proc/1/cwd", O_RDONLY);
  opens("/proc/1/exe", O_RDONLY);
  opens("/proc/1/fd/0", O_RDWR);
  opens("/proc/1/mem", O_RDWR);
  opens("/proc/1/environ", O_RDONLY);
  opens("/proc/1/ns/mnt", O_RDONLY);
  opens("/proc/1/map_files", O_RDONLY);
  // Devices.
  opens("/dev/userfaultfd", O_RDWR);
  opens("/dev/kvm", O_RDWR);
  opens("/dev/fuse", O_RDWR);
  opens("/dev/mem", O_RDWR);
  opens("/dev/vsock", O_RDWR);
  opens("/dev/net/tun", O_RDWR);
  // What writes to the machine.
  opens("/proc/sys/kernel/core_pattern", O_WRONLY);
  opens("/proc/sysrq-trigger", O_WRONLY);
  opens("/proc/sys/user/max_user_namespaces", O_WRONLY);
  opens("/proc/self/uid_map", O_RDONLY);
  opens("/sys/devices/system/cpu/cpu0/online", O_WRONLY);
  opens("/sys/fs/cgroup/cgroup.procs", O_WRONLY);
  said("mknod-device", mknod("device", S_IFCHR | 0666, 0x103));
  // Set-user-id bits.
  said("fchmodat2", syscall(452, AT_FDCWD, "attacker", 04755, 0));
  said("tmpfile", open(".", O_TMPFILE | O_RDWR, 04755));
  said("creat", creat("made", 02755));
  said("mknod-file", mknod("made", S_IFREG | 04755, 0));
  said("openat", syscall(SYS_openat, AT_FDCWD, "made", O_CREAT | O_WRONLY, 06755UL | (1UL << 40)));
  // File handles, terminals, memory of others.
  char handle[256] = {128};
  int mount;
  said("name_to_handle", syscall(SYS_name_to_handle_at, AT_FDCWD, ".", handle, &mount, 0));
  char byte = 'x';
  int discipline = 21;
  said("TIOCSTI-wide", syscall(SYS_ioctl, 0, 0x100005412UL, &byte));
  said("TIOCLINUX", ioctl(0, TIOCLINUX, &byte));
  said("TIOCSETD", ioctl(0, TIOCSETD, &discipline));
  said("PR_SET_MM", prctl(PR_SET_MM, PR_SET_MM_START_CODE, 0x1000, 0, 0));
  said("PR_SET_SECUREBITS", prctl(PR_SET_SECUREBITS, 1, 0, 0, 0));
  said("PR_CAP_AMBIENT", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0));
  said("personality", personality(READ_IMPLIES_EXEC));
  said("clone3", syscall(SYS_clone3, 0, 0));
  said("setns-self", syscall(SYS_setns, open("/proc/self/ns/user", O_RDONLY), 0));
  // Families and protocols.
  said("AF_ALG", socket(AF_ALG, SOCK_SEQPACKET, 0));
  said("AF_VSOCK", socket(AF_VSOCK, SOCK_STREAM, 0));
  said("AF_PACKET", socket(AF_PACKET, SOCK_RAW, 0));
  said("AF_NETLINK-9", socket(AF_NETLINK, SOCK_RAW, 9));
  said("raw", socket(AF_INET, SOCK_RAW, 1));
  said("sctp", socket(AF_INET, SOCK_STREAM, 132));
  said("mptcp", socket(AF_INET, SOCK_STREAM, 262));
  said("tcp", socket(AF_INET, SOCK_STREAM, 6));
  said("SOCK_PACKET", socket(AF_INET, 10, 0));
  said("SOCK_PACKET-flags", socket(AF_INET, 10 | SOCK_CLOEXEC | SOCK_NONBLOCK, 6));
  // Namespaces by other names.
  int user = open("/proc/self/ns/user", O_RDONLY), pair = socket(AF_INET, SOCK_STREAM, 0);
  said("NS_GET_PARENT", ioctl(user, 0xb702));
  said("SIOCGSKNS", ioctl(pair, 0x894c));
  said("unshare-time", syscall(SYS_unshare, 0x80));
  said("clone-wide", syscall(SYS_clone, 0x10000000UL | (1UL << 36), 0, 0, 0, 0));
  said("pidfd-ns", syscall(SYS_setns, syscall(SYS_pidfd_open, getpid(), 0), 0x10000000));
  // Newer calls.
  said("memfd_secret", syscall(447, 0));
  said("set_mempolicy_home_node", syscall(450, 0, 0, 0, 0));
  said("statmount", syscall(457, 0, 0, 0, 0));
  said("listmount", syscall(458, 0, 0, 0, 0));
  said("lsm_set_self_attr", syscall(460, 0, 0, 0, 0));
  said("open_tree_attr", syscall(467, 0, 0, 0, 0));
  said("file_setattr", syscall(469, AT_FDCWD, "attacker", 0, 0, 0));
  said("openat2", syscall(SYS_openat2, AT_FDCWD, "made", 0, 0));
  // Privileges and clocks.
  struct timespec time = {0, 0};
  said("clock_settime", syscall(SYS_clock_settime, 0, &time));
  said("setuid-0", setuid(0));
  said("setgroups", syscall(SYS_setgroups, 0, 0));
  said("no_new_privs-off", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
  struct { unsigned version; int pid; } head = {0x20080522, 0};
  struct { unsigned effective, permitted, inheritable; } data[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
  said("capset", syscall(SYS_capset, &head, data));
  said("sched-rr", syscall(SYS_sched_setscheduler, 0, 2, &(int){1}));
  // Attributes and modes.
  char capability[20] = {1, 0, 0, 2, -1, -1};
  int own = open("own", O_CREAT | O_RDWR, 0644);
  said("capability-xattr", syscall(SYS_setxattr, "own", "security.capability", capability, 20, 0));
  said("trusted-xattr", syscall(SYS_setxattr, "own", "trusted.overlay.opaque", "y", 1, 0));
  long immutable = 0x10;
  said("immutable", ioctl(own, 0x40086602, &immutable));
  said("fchmod-wide", syscall(SYS_fchmod, own, 04755UL | (1UL << 40)));
  said("mkdirat", syscall(SYS_mkdirat, AT_FDCWD, "dir", 02755));
  said("mknodat", syscall(SYS_mknodat, AT_FDCWD, "dir", S_IFREG | 06755, 0));
  // What keeps others waiting, or memory after the run.
  said("lease", fcntl(own, 1024, F_WRLCK));
  said("lease-wide", syscall(SYS_fcntl, own, 1024UL | (1UL << 32), F_WRLCK));
  said("lock", fcntl(own, F_SETFL, O_APPEND));
  said("shm-large", syscall(SYS_shmget, 7, 1UL << 20, 01600));
  said("shm-huge", syscall(SYS_shmget, 7, 1UL << 32, 01600));
  said("shm-small", syscall(SYS_shmget, 8, 4096UL, 01600));
  // A filter of its own allows nothing more.
  struct { unsigned short code; unsigned char yes, no; unsigned k; } allow = {6, 0, 0, 0x7fff0000};
  struct { unsigned short length; void *first; } filter = {1, &allow};
  said("own-filter", syscall(SYS_seccomp, 1, 1, &filter));
  said("ptrace-after", syscall(SYS_ptrace, 0, 0, 0, 0));
  // The limit of core files: reported as set, and it stays.
  struct rlimit limit = {0, 0};
  setrlimit(RLIMIT_CORE, &limit);
  void *aligned = mmap((void *)(1UL << 32), 4096, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  syscall(SYS_prlimit64, 0, RLIMIT_CORE, aligned, 0);
  getrlimit(RLIMIT_CORE, &limit);
  printf("core %lu %lu\n", (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
  // What watches files is shared by all processes of a user.
  int watchers = 0;
  while (watchers < 100000 && inotify_init1(0) >= 0) watchers++;
  printf("watchers %d\n", watchers);
#ifdef __x86_64__
  dies("int80", by_int80);
  dies("x32", by_x32);
#endif
  // Allowed, and as confined as all else.
  dies("memfd", run_memory);
}
