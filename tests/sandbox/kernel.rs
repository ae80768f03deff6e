//! What a run may ask of the kernel: rows P10 to P16.

use std::fs;

use crate::site::{USUAL, with_every_backend};

/// Calls a system call by its number with small arguments, and prints the error's name.
const CALLER: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int n, char **a) {
  for (int i = 1; i < n; i++) {
    char *end; long nr = strtol(a[i], &end, 10);
    long arg = *end == ':' ? strtol(end + 1, 0, 0) : 0;
    errno = 0;
    long r = syscall(nr, arg, 0, 0, 0, 0, 0);
    printf("%s %s\n", a[i], r >= 0 ? "OK" : strerrorname_np(errno));
  }
}
"#;

/// P10: values of the machine.
#[test]
fn the_machine_cannot_be_set_up_from_inside() {
    with_every_backend(USUAL, |site| {
        let before = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
        let run = site.inside(
            "for p in kernel/core_pattern kernel/modprobe vm/drop_caches user/max_user_namespaces; do \
               sh -c \"echo 1 > /proc/sys/$p\" 2>/dev/null && echo WROTE $p; done; \
             sh -c 'echo h > /proc/sysrq-trigger' 2>/dev/null && echo WROTE sysrq; \
             head -c 1 /proc/kcore | wc -c; wc -c < /proc/timer_list; cat /proc/sys/user/max_user_namespaces; true",
        );
        assert_eq!(
            run.stdout.split_whitespace().collect::<Vec<_>>(),
            ["0", "0", "0"],
            "{run:#?}"
        );
        assert_eq!(
            fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(),
            before
        );
    });
}

/// P11, P12: mounts and namespaces.
#[test]
fn mounts_and_namespaces_cannot_be_changed() {
    with_every_backend(USUAL, |site| {
        for attempt in [
            "mount -o remount,rw /usr",
            "umount /proc",
            "umount -l /etc/shadow",
            "mount --bind / /tmp",
            "mount -t tmpfs x /tmp",
            "unshare -U true",
            "unshare -Urmn true",
            "unshare -m true",
            "unshare -n true",
            "nsenter -t 1 -m true",
            "chroot /tmp /bin/true",
        ] {
            let run = site.inside(attempt);
            assert_ne!(run.code, 0, "{attempt}: {run:#?}");
        }
    });
}

/// P13, P14, P15 and more: calls that fail, by number.
#[test]
fn calls_of_the_list_are_refused_in_the_kernel() {
    with_every_backend(USUAL, |site| {
        let source = site.work().join("caller.c");
        site.owned(&source, CALLER);
        let built = site.work().join("caller");
        if !std::path::Path::new("/usr/bin/cc").exists() {
            println!("skipped: no C compiler");
            return;
        }
        site.host(&[
            "/usr/bin/cc",
            "-D_GNU_SOURCE",
            "-o",
            built.to_str().unwrap(),
            source.to_str().unwrap(),
        ]);
        let refused = [
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_io_uring_setup,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_fanotify_init,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_kcmp,
            libc::SYS_pidfd_getfd,
            libc::SYS_setns,
            libc::SYS_open_by_handle_at,
            libc::SYS_mount,
            libc::SYS_fsopen,
            libc::SYS_open_tree,
            libc::SYS_pivot_root,
            libc::SYS_init_module,
            libc::SYS_kexec_load,
            libc::SYS_reboot,
            libc::SYS_syslog,
        ];
        let absent = [libc::SYS_clone3, libc::SYS_openat2, 600];
        let words = |calls: &[libc::c_long]| {
            calls
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let run = site.says(&format!("./caller {} {}", words(&refused), words(&absent)));
        for (line, call) in run.lines().zip(refused.iter().chain(&absent)) {
            let expected = if refused.contains(call) {
                "EPERM"
            } else {
                "ENOSYS"
            };
            assert_eq!(line, format!("{call} {expected}"), "{run}");
        }
        // Every namespace, by clone and by unshare; families of sockets.
        let flags: Vec<String> = [
            0x2_0000_u64,
            0x200_0000,
            0x400_0000,
            0x800_0000,
            0x1000_0000,
            0x2000_0000,
            0x4000_0000,
        ]
        .iter()
        .flat_map(|flag| [libc::SYS_clone, libc::SYS_unshare].map(|call| format!("{call}:{flag}")))
        .collect();
        let run = site.says(&format!("./caller {}", flags.join(" ")));
        assert!(run.lines().all(|line| line.ends_with(" EPERM")), "{run}");
        let run = site.says(&format!("./caller {0}:17 {0}:38 {0}:40", libc::SYS_socket));
        assert!(
            run.lines().all(|line| line.ends_with(" EAFNOSUPPORT")),
            "{run}"
        );
    });
}

/// P15: another process of the same run.
#[test]
fn p15_no_process_traces_another() {
    if !std::path::Path::new("/usr/bin/strace").exists() {
        println!("skipped: strace is not installed");
        return;
    }
    with_every_backend(USUAL, |site| {
        let run = site.inside(
            "sleep 60 & p=$!; strace -p $p; echo $?; strace true; echo $?; head -c 1 /proc/$p/mem; kill $p; true",
        );
        assert_eq!(run.stdout, "1\n1\n", "{run:#?}");
        let refused = run.stderr.matches("Operation not permitted").count();
        assert!(refused >= 2, "{run:#?}");
    });
}

/// P16: a terminal takes no input from the program that writes to it, and an attached operator's gets none.
#[test]
fn a_terminal_takes_no_input_from_a_program() {
    with_every_backend(USUAL, |site| {
        let script = "perl -e 'for my $n (0x5412, 0x541c, 0x541d, 0x5423) { for my $high (0, 1 << 32, 0xffffffff << 32) { \
             $x=\"a\"; print ioctl(STDIN, $n | $high, $x) ? \"PUT\\n\" : \"no: $!\\n\" } }'; tty; \
             read -t 1 line < /dev/tty; echo got $line";
        let run = site.machine.run(&[
            "exec",
            "--pty",
            "--",
            &format!("bash -c '{}'", script.replace('\'', "'\\''")),
        ]);
        let refused = run.stdout.matches("no: Operation not permitted").count();
        assert_eq!(refused, 12, "{run:#?}");
        assert!(run.stdout.contains("/dev/pts/0"), "{run:#?}");
        assert!(!run.stdout.contains("PUT"), "{run:#?}");
        assert!(!run.stdout.contains("got a"), "{run:#?}");
    });
}
