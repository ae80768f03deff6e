//! A sandbox on another machine, reached with the system's `ssh`: the arguments of the client.
//! Every text of a caller is one quoted word after the constant script that receives it, and never
//! an option.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::identity::PinnedFile;

/// Runs the text of a call. Its words are the directory of the scope, the run, the working
/// directory, the text, and then assignments. If the far side can make a PID namespace, the run
/// gets one, so that it ends as a whole.
const RUN: &str = r#"root=$1 run=$2 dir=$3 text=$4
shift 4
umask 022
mkdir -p -- "$root/.runs" && echo $$ >"$root/.runs/$run" || exit 125
cd -- "$dir" || exit 125
own="--pid --fork --kill-child --mount-proc"
[ "$(id -u)" = 0 ] || own="--user --map-current-user $own"
unshare $own true 2>/dev/null || own=
if [ -n "$own" ]; then
  exec env -i HOME="$HOME" USER="$(id -un)" LOGNAME="$(id -un)" "$@" INTERLOCK_RUN="$run" unshare $own /bin/sh -c '/bin/sh -lc "$1"; exit $?' sh "$text"
fi
exec env -i HOME="$HOME" USER="$(id -un)" LOGNAME="$(id -un)" "$@" INTERLOCK_RUN="$run" /bin/sh -lc "$text""#;

/// Ends the remaining processes of a run, and succeeds if there are none. Its words are the
/// directory of the scope and the run.
const END: &str = r#"root=$1 run=$2
first=$(cat "$root/.runs/$run" 2>/dev/null) || exit 0
tries=0
while :; do
  found=$(grep -lsF -- "INTERLOCK_RUN=$run" /proc/[0-9]*/environ | sed 's,^/proc/,,; s,/environ$,,')
  for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$stat" || continue
    pid=${line%% *} rest=${line##*) }
    set -- $rest
    [ "$4" = "$first" ] && [ "$1" != Z ] && found="$found $pid"
  done
  [ -n "$found" ] || break
  kill -9 $found 2>/dev/null
  tries=$((tries + 1))
  [ "$tries" -lt 200 ] || exit 1
  sleep 0.05 2>/dev/null || sleep 1
done
rm -f -- "$root/.runs/$run""#;

/// Where the runs of a scope are carried out, and how to reach that machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SshPlan {
    /// The system's client.
    pub client: PinnedFile,
    pub host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Values of `-o` that say which keys count, for the connection that all runs of the scope
    /// share.
    pub options: Vec<String>,
    /// The socket of that connection.
    pub control: String,
    /// The directory of the scope on the far side.
    pub root: String,
    /// Variables of the client itself, such as the socket of the owner's key agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub client_env: BTreeMap<String, String>,
}

/// One run on the far side.
#[derive(Debug, Clone, Copy)]
pub struct FarRun<'a> {
    /// Letters and digits only.
    pub id: &'a str,
    pub cwd: &'a str,
    pub env: &'a BTreeMap<String, String>,
    pub text: &'a str,
    pub has_terminal: bool,
}

impl SshPlan {
    /// The directory of the workspace on the far side.
    pub fn workspace(&self) -> String {
        format!("{}/workspace", self.root)
    }

    /// The arguments that open the shared connection. It serves until its process ends.
    pub fn master_arguments(&self) -> Vec<String> {
        let own = ["ControlMaster=yes", "ControlPersist=no"].map(str::to_owned);
        let mut words = self.arguments(own.into_iter().chain(self.options.iter().cloned()));
        words.push("-N".to_owned());
        self.addressed(words, None)
    }

    /// The arguments that run a command over the shared connection. Without it there is no
    /// connection: a client of a run cannot authenticate to the far side by itself.
    fn shared_arguments(&self, has_terminal: bool, command: &str) -> Vec<String> {
        let own = ["ControlMaster=no", "ProxyCommand=false"].map(str::to_owned);
        let mut words = self.arguments(own.into_iter());
        words.push(if has_terminal { "-tt" } else { "-T" }.to_owned());
        self.addressed(words, Some(command))
    }

    pub fn run_arguments(&self, run: &FarRun<'_>) -> Vec<String> {
        let mut words = vec![self.root.as_str(), run.id, run.cwd, run.text];
        let assignments: Vec<String> = run
            .env
            .iter()
            .filter(|(name, _)| is_variable(name))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        words.extend(assignments.iter().map(String::as_str));
        self.shared_arguments(run.has_terminal, &far_command(RUN, &words))
    }

    pub fn end_arguments(&self, run_id: &str) -> Vec<String> {
        self.shared_arguments(false, &far_command(END, &[&self.root, run_id]))
    }

    /// The arguments that run a script of Interlock itself, with its words.
    pub fn script_arguments(&self, script: &str, words: &[&str]) -> Vec<String> {
        self.shared_arguments(false, &far_command(script, words))
    }

    fn arguments(&self, options: impl Iterator<Item = String>) -> Vec<String> {
        let mut words = vec!["ssh".to_owned(), "-F".to_owned(), "/dev/null".to_owned()];
        words.extend(["-S".to_owned(), self.control.clone()]);
        let always = [
            "BatchMode=yes",
            "ForwardAgent=no",
            "ForwardX11=no",
            "ClearAllForwardings=yes",
            "PermitLocalCommand=no",
            "LogLevel=ERROR",
        ];
        for option in always.map(str::to_owned).into_iter().chain(options) {
            words.extend(["-o".to_owned(), option]);
        }
        words
    }

    fn addressed(&self, mut words: Vec<String>, command: Option<&str>) -> Vec<String> {
        if let Some(user) = &self.user {
            words.extend(["-l".to_owned(), user.clone()]);
        }
        if let Some(port) = self.port {
            words.extend(["-p".to_owned(), port.to_string()]);
        }
        words.extend(["--".to_owned(), self.host.clone()]);
        words.extend(command.map(str::to_owned));
        words
    }
}

/// The command for the login shell of the far side: one command of quoted words.
fn far_command(script: &str, words: &[&str]) -> String {
    let mut command = format!("exec /bin/sh -c {} interlock", quoted(script));
    for word in words {
        command.push(' ');
        command.push_str(&quoted(word));
    }
    command
}

/// Puts a word in single quotes, which a shell reads literally.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = bytes.next();
    first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> SshPlan {
        SshPlan {
            client: PinnedFile {
                found: "/usr/bin/ssh".to_owned(),
                canonical: "/usr/bin/ssh".to_owned(),
                device: 0,
                inode: 0,
                size: 0,
                mtime_ns: 0,
                ctime_ns: 0,
                sha256: None,
            },
            host: "far".to_owned(),
            user: Some("me".to_owned()),
            port: Some(22),
            options: vec!["StrictHostKeyChecking=yes".to_owned()],
            control: "/s/ctl".to_owned(),
            root: "/tmp/it's here".to_owned(),
            client_env: BTreeMap::new(),
        }
    }

    /// A real shell reads the words back as they were, also those that look like options or quotes.
    #[test]
    fn every_word_of_a_caller_arrives_as_it_is() {
        let words = [
            "-oProxyCommand=touch x",
            "--",
            "",
            "a'b\"c`d$(e)\\",
            "line\nline\r\t",
            "ä *?[]{}~!#&;|<>()",
            "'",
            "''",
        ];
        let command = far_command(r#"for word; do printf '%s\0' "$word"; done"#, &words);
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", &command])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let mut read: Vec<&str> = said.split('\0').collect();
        assert_eq!(read.pop(), Some(""));
        assert_eq!(read, words);
    }

    #[test]
    fn the_host_and_one_command_follow_the_end_of_options() {
        let env = BTreeMap::from([
            ("GOOD".to_owned(), "-x 'y'".to_owned()),
            ("-BAD".to_owned(), "x".to_owned()),
            ("A B".to_owned(), "x".to_owned()),
        ]);
        let run = FarRun {
            id: "run1",
            cwd: "-w",
            env: &env,
            text: "-c 'x'",
            has_terminal: true,
        };
        let words = plan().run_arguments(&run);
        let end = words.iter().position(|word| word == "--").unwrap();
        assert_eq!(words[end + 1], "far");
        assert_eq!(words.len(), end + 3);
        let command = &words[end + 2];
        assert!(command.contains(r"'-c '\''x'\'''"), "{command}");
        assert!(command.contains(r"'GOOD=-x '\''y'\'''"), "{command}");
        assert!(
            !command.contains("BAD") && !command.contains("A B"),
            "{command}"
        );
        assert!(words[..end].contains(&"ProxyCommand=false".to_owned()));
        let master = plan().master_arguments();
        assert_eq!(master.last().unwrap(), "far");
        assert!(master.contains(&"StrictHostKeyChecking=yes".to_owned()));
    }
}
