//! The paths that no sandbox shows, in tables with the reason for each.

use std::path::{Path, PathBuf};

/// A hidden path, and the reason.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HiddenPath {
    pub path: &'static str,
    pub reason: &'static str,
}

impl HiddenPath {
    /// Whether a bind may not show the path either. Logs are hidden as a whole, but an owner who
    /// names one shows it on purpose.
    pub fn is_blocked_as_bind(self) -> bool {
        !["/var/log", "/lost+found"].contains(&self.path)
    }
}

macro_rules! hidden {
    ($($path:literal: $reason:literal,)+) => { &[$(HiddenPath { path: $path, reason: $reason }),+] };
}

/// Paths below the home directory.
pub(crate) const IN_HOME: &[HiddenPath] = hidden! {
    ".ssh": "keys and hosts of ssh",
    ".aws": "cloud credentials",
    ".azure": "cloud credentials",
    ".gnupg": "private keys",
    ".config": "settings and tokens of programs",
    ".docker": "registry credentials and contexts",
    ".kube": "cluster credentials",
    ".netrc": "passwords",
    ".npmrc": "registry tokens",
    ".npm/_logs": "addresses and arguments of the owner's commands",
    ".yarnrc.yml": "registry tokens",
    ".pypirc": "registry tokens",
    ".git-credentials": "passwords",
    ".cargo/credentials": "registry tokens",
    ".cargo/credentials.toml": "registry tokens",
    ".gem/credentials": "registry tokens",
    ".m2/settings.xml": "registry passwords",
    ".gradle/gradle.properties": "registry passwords",
    ".pgpass": "passwords",
    ".my.cnf": "passwords",
    ".vault-token": "tokens",
    ".terraform.d": "cloud credentials",
    ".password-store": "passwords",
    ".local/share/keyrings": "keyrings",
    ".pki": "private keys",
    ".mozilla": "a browser's passwords and cookies",
    ".thunderbird": "mail",
    ".cache/mozilla": "a browser's files",
    ".cache/google-chrome": "a browser's files",
    ".bash_history": "what the owner typed",
    ".zsh_history": "what the owner typed",
    ".python_history": "what the owner typed",
    ".claude": "an agent's tokens and settings",
    ".claude.json": "an agent's tokens and settings",
    ".codex": "an agent's tokens and settings",
    ".gemini": "an agent's tokens and settings",
    ".openclaw": "an agent's tokens and settings",
    ".interlock": "Interlock itself",
    ".gnome2": "keyrings",
    ".dbus": "the session's bus",
    ".Xauthority": "the session's display",
    ".ICEauthority": "the session's display",
    ".android/adbkey": "keys of devices",
    ".authinfo": "passwords",
    ".authinfo.gpg": "passwords",
    ".bundle/config": "registry tokens",
    ".cache/huggingface/token": "tokens",
    ".composer/auth.json": "registry tokens",
    ".databrickscfg": "cloud credentials",
    ".fetchmailrc": "passwords",
    ".fly": "cloud credentials",
    ".gitcookies": "passwords",
    ".hex/hex.config": "registry tokens",
    ".huggingface": "tokens",
    ".ivy2/.credentials": "registry passwords",
    ".kaggle": "tokens",
    ".lein/credentials.clj": "registry passwords",
    ".lein/credentials.clj.gpg": "registry passwords",
    ".m2/settings-security.xml": "registry passwords",
    ".mbsyncrc": "passwords",
    ".minikube": "cluster credentials",
    ".msmtprc": "passwords",
    ".mylogin.cnf": "passwords",
    ".nuget/NuGet": "registry tokens",
    ".oci": "cloud credentials",
    ".offlineimaprc": "passwords",
    ".op": "passwords",
    ".pulumi/credentials.json": "cloud credentials",
    ".putty": "keys and hosts of ssh",
    ".s3cfg": "cloud credentials",
    ".sbt/.credentials": "registry passwords",
    ".smbcredentials": "passwords",
    ".subversion/auth": "passwords",
    ".terraformrc": "cloud credentials",
    ".tsh": "keys and hosts of ssh",
    ".boto": "cloud credentials",
    ".yarnrc": "registry tokens",
    ".local/share/fish": "what the owner typed",
    ".local/share/atuin": "what the owner typed",
    ".local/share/goose": "an agent's tokens and settings",
    ".local/share/opencode": "an agent's tokens and settings",
    ".local/share/kwalletd": "keyrings",
    ".local/share/python_keyring": "keyrings",
    ".local/share/containers": "registry credentials and containers",
    ".local/share/direnv": "what the owner trusts",
    ".local/state": "state of programs",
    ".node_repl_history": "what the owner typed",
    ".psql_history": "what the owner typed",
    ".mysql_history": "what the owner typed",
    ".sqlite_history": "what the owner typed",
    ".rediscli_history": "what the owner typed",
    ".irb_history": "what the owner typed",
    ".lesshst": "what the owner typed",
    ".viminfo": "what the owner typed",
    ".cursor": "an agent's tokens and settings",
    ".windsurf": "an agent's tokens and settings",
    ".continue": "an agent's tokens and settings",
    ".aider.conf.yml": "an agent's tokens and settings",
    ".copilot": "an agent's tokens and settings",
    ".goose": "an agent's tokens and settings",
    ".vscode-server/data": "an editor's tokens",
    ".var/app": "data of desktop programs",
    ".bitcoin": "a wallet",
    ".ethereum": "a wallet",
    ".electrum": "a wallet",
};

/// Paths in `/etc` and the rest of the system.
pub(crate) const IN_SYSTEM: &[HiddenPath] = hidden! {
    "/etc/shadow": "password hashes",
    "/etc/shadow-": "password hashes",
    "/etc/gshadow": "password hashes",
    "/etc/gshadow-": "password hashes",
    "/etc/security/opasswd": "password hashes",
    "/etc/sudoers": "rules of sudo",
    "/etc/sudoers.d": "rules of sudo",
    "/etc/doas.conf": "rules of doas",
    "/etc/ssh/ssh_host_rsa_key": "a host key",
    "/etc/ssh/ssh_host_dsa_key": "a host key",
    "/etc/ssh/ssh_host_ecdsa_key": "a host key",
    "/etc/ssh/ssh_host_ed25519_key": "a host key",
    "/etc/ssl/private": "private keys",
    "/etc/pki/tls/private": "private keys",
    "/etc/letsencrypt": "private keys",
    "/etc/krb5.keytab": "a host key",
    "/etc/NetworkManager/system-connections": "connection secrets",
    "/etc/wpa_supplicant": "connection secrets",
    "/etc/netplan": "connection secrets",
    "/etc/ppp": "connection secrets",
    "/etc/wireguard": "connection secrets",
    "/etc/openvpn": "connection secrets",
    "/etc/ipsec.secrets": "connection secrets",
    "/etc/ipsec.d/private": "connection secrets",
    "/etc/docker": "keys of the engine",
    "/etc/kubernetes": "cluster credentials",
    "/etc/rancher": "cluster credentials",
    "/etc/interlock": "Interlock itself",
    "/boot": "what the machine starts",
    "/var/lib/docker": "containers of the machine",
    "/var/lib/containers": "containers of the machine",
    "/var/lib/containerd": "containers of the machine",
    "/var/lib/kubelet": "cluster credentials",
    "/var/lib/sss": "accounts of the machine",
    "/var/spool/cron": "what the machine starts",
    "/var/backups": "copies of hidden files",
    "/var/log": "logs of the machine",
    "/var/mail": "mail",
    "/var/crash": "memory of crashed programs",
    "/var/lib/systemd/coredump": "memory of crashed programs",
    "/var/lib/NetworkManager": "connection secrets",
    "/var/lib/bluetooth": "connection secrets",
    "/etc/cups/printers.conf": "passwords",
    "/etc/exim4/passwd.client": "passwords",
    "/etc/postfix/sasl_passwd": "passwords",
    "/etc/samba/credentials": "passwords",
    "/etc/msmtprc": "passwords",
    "/etc/pacman.d/gnupg/private-keys-v1.d": "private keys",
    "/etc/cni": "cluster credentials",
    "/lost+found": "lost files",
};

/// Sockets that give control over a container engine, and thus over the machine.
pub(crate) const ENGINE_SOCKETS: &[HiddenPath] = hidden! {
    "/run": "sockets of the machine's services",
    "/var/run": "sockets of the machine's services",
    "/var/run/docker.sock": "the container engine",
};

/// Names of files in caches in which package managers and their plugins keep credentials. A name
/// that begins with `_auth` counts too, because npm names its tokens like that.
const CREDENTIAL_NAMES: [&str; 22] = [
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".netrc",
    "_netrc",
    ".pypirc",
    "pip.conf",
    ".git-credentials",
    "credentials",
    "credentials.toml",
    "credentials.json",
    "credentials.xml",
    "auth.json",
    "auth.toml",
    ".auth",
    "token",
    "tokens",
    "token.json",
    "settings.xml",
    "settings-security.xml",
    "gradle.properties",
    "NuGet.Config",
];

/// Depth to which a cache is searched for credentials. The fetched packages, whose files are
/// public, are below that.
const CREDENTIAL_DEPTH: usize = 2;

/// Most names that are examined in one cache, because it contains many packages and the search
/// precedes every run.
const MOST_NAMES: usize = 4_000;

/// Returns the files of a cache whose names indicate credentials.
pub(crate) fn credentials_in(cache: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![cache.to_owned()];
    let mut left = MOST_NAMES;
    for depth in 1..=CREDENTIAL_DEPTH {
        let mut below = Vec::new();
        for directory in open {
            let entries = std::fs::read_dir(&directory).into_iter().flatten();
            for entry in entries.flatten() {
                if left == 0 {
                    return found;
                }
                left -= 1;
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                if kind.is_dir() {
                    if depth < CREDENTIAL_DEPTH {
                        below.push(entry.path());
                    }
                } else if is_credential(&entry.file_name().to_string_lossy()) {
                    found.push(entry.path());
                }
            }
        }
        open = below;
    }
    found
}

fn is_credential(name: &str) -> bool {
    let is_listed = |listed: &&str| listed.eq_ignore_ascii_case(name);
    name.starts_with("_auth") || CREDENTIAL_NAMES.iter().any(is_listed)
}

/// Returns all hidden paths of this host, as absolute paths. The caller adds the state directory
/// and everything else that belongs to Interlock.
pub(crate) fn hidden_paths(home: Option<&Path>) -> Vec<(PathBuf, &'static str)> {
    let system = IN_SYSTEM
        .iter()
        .map(|row| (PathBuf::from(row.path), row.reason));
    let in_home = home.into_iter().flat_map(|home| {
        IN_HOME
            .iter()
            .map(move |row| (home.join(row.path), row.reason))
    });
    system.chain(in_home).collect()
}
