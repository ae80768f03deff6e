//! Tools that talk to other machines.

use super::detect::detect;
use super::files::is_a_file;
use super::grammar::{Grammar, OptionOrder, ProgramGrammar, code, config, loads, program, writes};
use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine};

pub(super) const PROGRAMS: &[ProgramGrammar] = &[
    ProgramGrammar::table(&["ssh", "slogin"], &SSH),
    ProgramGrammar::table(&["scp", "sftp"], &SCP),
    ProgramGrammar::table(&["ssh-keygen", "ssh-add", "ssh-keyscan"], &SSH_KEYS),
    ProgramGrammar::table(&["rsync"], &RSYNC),
    ProgramGrammar::table(&["curl"], &CURL),
    ProgramGrammar::table(&["wget", "wget2"], &WGET),
    ProgramGrammar::inspected(&["aria2c"], &ARIA, aria_hooks),
    ProgramGrammar::table(&["tcpdump", "dumpcap"], &TCPDUMP),
    ProgramGrammar::table(&["nmap"], &NMAP),
    ProgramGrammar::table(&["openssl"], &OPENSSL),
    ProgramGrammar::table(&["nc", "ncat", "netcat"], &NETCAT),
    ProgramGrammar::table(&["socat"], &SOCAT),
    ProgramGrammar::table(
        &["ansible", "ansible-playbook", "ansible-console"],
        &ANSIBLE,
    ),
    ProgramGrammar::inspected(&["kubectl", "oc"], &KUBECTL, kubectl_exec),
    ProgramGrammar::table(&["helm"], &HELM),
];

const HELPER: &str = "names a program to start";
const OPTIONS_FROM_FILE: &str = "options come from a file";
const OUTPUT_FILE: &str = "writes to a named file";
const LIBRARY: &str = "loads a library";
const SSH_OPTION: &str = "the setting names a command, a library or more settings";

const SSH: Grammar = Grammar {
    rules: &[
        program("-o", SSH_OPTION).when(ssh_option_matters),
        config("-F", "another configuration can name commands").when(is_a_config),
        loads("-I", LIBRARY),
        writes("-E", "writes a log").when(is_a_file),
    ],
    // The host, then options again, then the remote command.
    order: OptionOrder::Until(2),
    short_values: "BDJLOPQRSWbceilmpw",
    ..Grammar::GNU
};

const SCP: Grammar = Grammar {
    rules: &[
        program("-o", SSH_OPTION).when(ssh_option_matters),
        config("-F", "another configuration can name commands").when(is_a_config),
        program("-S", "names the program that makes the connection"),
        program("-D", "names a server program to start here"),
        loads("-b", "a batch of commands can run local programs").when(|file| file != "-"),
    ],
    short_values: "BJPRXcils",
    ..Grammar::GNU
};

/// Settings that run something, load something or include more settings.
const SSH_OPTIONS: [&str; 11] = [
    "include",
    "knownhostscommand",
    "localcommand",
    "match",
    "permitlocalcommand",
    "pkcs11provider",
    "proxycommand",
    "proxyusefdpass",
    "securitykeyprovider",
    "smartcarddevice",
    "xauthlocation",
];

fn ssh_option_matters(setting: &str) -> bool {
    let setting = setting.trim();
    let key_end = setting.find(|c: char| c == '=' || c.is_whitespace());
    let (key, value) = setting.split_at(key_end.unwrap_or(setting.len()));
    let value = value.trim_start_matches(|c: char| c == '=' || c.is_whitespace());
    let key = key.trim_matches('"').to_ascii_lowercase();
    let off = matches!(
        value.to_ascii_lowercase().as_str(),
        "none" | "no" | "internal"
    );
    (SSH_OPTIONS.contains(&key.as_str()) && !off) || setting.contains(['\n', '\r'])
}

fn is_a_config(file: &str) -> bool {
    !matches!(file, "/dev/null" | "none")
}

const SSH_KEYS: Grammar = Grammar {
    rules: &[
        loads("-D", LIBRARY),
        loads("-w", LIBRARY),
        loads("-s", LIBRARY),
        loads("-S", LIBRARY).when(|value| value.contains('/')),
    ],
    short_values: "CEFGIMNOPTVabefnmprtz",
    ..Grammar::GNU
};

const RSYNC: Grammar = Grammar {
    rules: &[
        program("-e", "names the program that makes the connection").when(is_odd_remote_shell),
        program("--rsh", "names the program that makes the connection").when(is_odd_remote_shell),
        program(
            "--rsync-path",
            "names the program to start on the other side",
        ),
        config("-M", "passes options to the other side"),
        config("--remote-option", "passes options to the other side"),
        config("--config", "another configuration can name commands"),
        config("--daemon", "serves files by a configuration").flag(),
        writes("--log-file", OUTPUT_FILE),
        writes("--write-batch", OUTPUT_FILE),
        writes("--only-write-batch", OUTPUT_FILE),
    ],
    short_values: "@BTf",
    long_values: &[
        "--backup-dir",
        "--block-size",
        "--bwlimit",
        "--chmod",
        "--chown",
        "--compare-dest",
        "--compress-level",
        "--contimeout",
        "--copy-dest",
        "--exclude",
        "--exclude-from",
        "--files-from",
        "--filter",
        "--include",
        "--include-from",
        "--link-dest",
        "--max-size",
        "--min-size",
        "--out-format",
        "--partial-dir",
        "--password-file",
        "--port",
        "--suffix",
        "--temp-dir",
        "--timeout",
    ],
    abbreviates: false,
    ..Grammar::GNU
};

/// Whether the command is anything but `ssh` with harmless options, which is the intended use of
/// `-e`.
fn is_odd_remote_shell(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    words.first() != Some(&"ssh") || command.contains(['"', '\'', '\\']) || detect(&words).is_some()
}

const CURL: Grammar = Grammar {
    rules: &[
        config("-K", OPTIONS_FROM_FILE),
        config("--config", OPTIONS_FROM_FILE),
        loads("--engine", LIBRARY),
        writes("-o", OUTPUT_FILE).when(is_a_file),
        writes("--output", OUTPUT_FILE).when(is_a_file),
        writes("--expand-output", OUTPUT_FILE),
        writes("--output-dir", "writes into a named directory"),
        writes("-O", "writes a file named by the address").flag(),
        writes("--remote-name", "writes a file named by the address").flag(),
        writes("--remote-name-all", "writes files named by the addresses").flag(),
        writes("-D", OUTPUT_FILE).when(is_a_file),
        writes("--dump-header", OUTPUT_FILE).when(is_a_file),
        writes("-c", OUTPUT_FILE).when(is_a_file),
        writes("--cookie-jar", OUTPUT_FILE).when(is_a_file),
        writes("--trace", OUTPUT_FILE).when(is_a_file),
        writes("--trace-ascii", OUTPUT_FILE).when(is_a_file),
        writes("--stderr", OUTPUT_FILE).when(is_a_file),
        writes("--libcurl", OUTPUT_FILE).when(is_a_file),
        writes("--etag-save", OUTPUT_FILE).when(is_a_file),
        writes("--hsts", OUTPUT_FILE),
        writes("--alt-svc", OUTPUT_FILE),
        writes("-w", OUTPUT_FILE).when(|format| format.contains("%output{")),
        writes("--write-out", OUTPUT_FILE).when(|format| format.contains("%output{")),
    ],
    short_values: "ACEFHPQTUXYbdemrtuxyz",
    long_values: &[
        "--cacert",
        "--cert",
        "--connect-timeout",
        "--cookie",
        "--data",
        "--data-binary",
        "--data-raw",
        "--data-urlencode",
        "--form",
        "--header",
        "--json",
        "--key",
        "--max-time",
        "--proxy",
        "--range",
        "--referer",
        "--request",
        "--resolve",
        "--retry",
        "--retry-delay",
        "--retry-max-time",
        "--upload-file",
        "--url",
        "--user",
        "--user-agent",
    ],
    ..Grammar::GNU
};

const WGET: Grammar = Grammar {
    rules: &[
        program("--use-askpass", HELPER),
        config("-e", "a setting can name programs and files"),
        config("--execute", "a setting can name programs and files"),
        config("--config", OPTIONS_FROM_FILE),
        writes("-O", OUTPUT_FILE).when(is_a_file),
        writes("--output-document", OUTPUT_FILE).when(is_a_file),
        writes("-o", OUTPUT_FILE).when(is_a_file),
        writes("--output-file", OUTPUT_FILE).when(is_a_file),
        writes("-a", OUTPUT_FILE).when(is_a_file),
        writes("--append-output", OUTPUT_FILE).when(is_a_file),
        writes("-P", "writes into a named directory"),
        writes("--directory-prefix", "writes into a named directory"),
        writes("--save-cookies", OUTPUT_FILE),
        writes("--warc-file", OUTPUT_FILE),
        writes("--rejected-log", OUTPUT_FILE),
        writes("--hsts-file", OUTPUT_FILE),
        program("--on-download-complete", HELPER),
    ],
    short_values: "ABDIQRTUXiltw",
    short_attached: "n",
    long_values: &[
        "--header",
        "--user-agent",
        "--post-data",
        "--referer",
        "--tries",
        "--timeout",
    ],
    ..Grammar::GNU
};

const ARIA: Grammar = Grammar {
    rules: &[
        config("--conf-path", OPTIONS_FROM_FILE),
        config("-i", "a list of downloads may hold options"),
        config("--input-file", "a list of downloads may hold options"),
        program("--enable-rpc", "opens a port that takes orders").attached(),
        writes("-o", OUTPUT_FILE),
        writes("--out", OUTPUT_FILE),
        writes("-d", "writes into a named directory"),
        writes("--dir", "writes into a named directory"),
        writes("-l", "writes a log").when(is_a_file),
        writes("--log", "writes a log").when(is_a_file),
    ],
    short_values: "MSTjksx",
    ..Grammar::GNU
};

/// Finds `--on-download-complete` and similar options, also abbreviated.
fn aria_hooks(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let hooks = parsed
        .options
        .iter()
        .filter(|option| option.name.starts_with("--on-"));
    let kind = HitKind::ProgramOption;
    hooks
        .map(|option| call.hit(&option.name, kind, option.index, HELPER))
        .collect()
}

const TCPDUMP: Grammar = Grammar {
    rules: &[
        program("-z", "runs a program on each finished file"),
        writes("-w", OUTPUT_FILE).when(is_a_file),
    ],
    short_values: "BCDEFGMTVWcijmrsy",
    ..Grammar::GNU
};

const NMAP: Grammar = Grammar {
    rules: &[
        loads("-script", "runs scripts"),
        loads("-script-args-file", "script arguments come from a file"),
        loads("-datadir", "scripts and tables come from another directory"),
        loads("-servicedb", "tables come from another file"),
        writes("-oN", OUTPUT_FILE).when(is_a_file),
        writes("-oX", OUTPUT_FILE).when(is_a_file),
        writes("-oG", OUTPUT_FILE).when(is_a_file),
        writes("-oS", OUTPUT_FILE).when(is_a_file),
        writes("-oA", OUTPUT_FILE),
        loads("-interactive", "takes commands from standard input").flag(),
    ],
    long_values: &["-script-args", "-p", "-iL", "-e", "-S"],
    ..Grammar::WORDS
};

const OPENSSL: Grammar = Grammar {
    rules: &[
        loads("-engine", LIBRARY),
        loads("-engine_impl", LIBRARY).flag(),
        loads("-provider", LIBRARY)
            .when(|name| !matches!(name, "default" | "legacy" | "base" | "fips")),
        loads("-provider-path", "libraries come from another directory"),
        config("-config", "another configuration can name libraries"),
    ],
    ..Grammar::WORDS
};

const NETCAT: Grammar = Grammar {
    rules: &[
        program("-e", "connects a program to the network"),
        program("--exec", "connects a program to the network"),
        program("-c", "connects a program to the network"),
        program("--sh-exec", "connects a program to the network"),
        program("--lua-exec", "connects a program to the network"),
        writes("-o", OUTPUT_FILE),
        writes("--output", OUTPUT_FILE),
        writes("-x", OUTPUT_FILE),
    ],
    short_values: "IMOPTVWXGigmpqsw",
    ..Grammar::GNU
};

const SOCAT: Grammar = Grammar {
    rules: &[
        program("exec:*", "connects a program to the network").called("EXEC:"),
        program("EXEC:*", "connects a program to the network").called("EXEC:"),
        program("system:*", "connects a program to the network").called("SYSTEM:"),
        program("SYSTEM:*", "connects a program to the network").called("SYSTEM:"),
        program("shell:*", "connects a program to the network").called("SHELL:"),
        program("SHELL:*", "connects a program to the network").called("SHELL:"),
    ],
    ..Grammar::WORDS
};

const ANSIBLE: Grammar = Grammar {
    rules: &[
        code("-a", "a module's arguments can be a command"),
        code("--args", "a module's arguments can be a command"),
        loads("-M", "modules come from another directory"),
        loads("--module-path", "modules come from another directory"),
        program(
            "--vault-password-file",
            "an executable file is run for its output",
        ),
        program("--vault-id", "an executable file is run for its output"),
        program("--become-|method", "names how to become another user"),
        config("-i", "an executable inventory is run for its output"),
        config(
            "--inventory",
            "an executable inventory is run for its output",
        ),
        program("--ssh-common-args", "options of ssh can name commands"),
        program("--ssh-extra-args", "options of ssh can name commands"),
    ],
    short_values: "BPTceflmtu",
    ..Grammar::GNU
};

const KUBECTL: Grammar = Grammar {
    rules: &[
        config(
            "--kubeconfig",
            "another configuration can name a program for credentials",
        ),
        program("--exec-command", "names a program for credentials"),
        writes("--cache-dir", "writes into a named directory"),
        writes("--profile-output", OUTPUT_FILE),
    ],
    short_values: "cflnosv",
    long_values: &[
        "--as",
        "--as-group",
        "--cluster",
        "--context",
        "--namespace",
        "--request-timeout",
        "--server",
        "--token",
        "--user",
    ],
    abbreviates: false,
    ..Grammar::GNU
};

fn kubectl_exec(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let first = parsed
        .operands
        .first()
        .filter(|&&index| call.argv[index] == "exec");
    let reason = "runs a program in a container";
    let hit = first.map(|&index| call.hit("exec", HitKind::ProgramOption, index, reason));
    hit.into_iter().collect()
}

const HELM: Grammar = Grammar {
    rules: &[
        program("--post-renderer", "pipes manifests through a program"),
        config(
            "--kubeconfig",
            "another configuration can name a program for credentials",
        ),
        config("--repository-config", "charts come from elsewhere"),
        config("--registry-config", "charts come from elsewhere"),
    ],
    abbreviates: false,
    ..Grammar::GNU
};
