//! Derives a short title from a command: what is done, and to what. Titles are for humans only; no
//! decision depends on them.

/// Words that run another command, which the title is about.
const CARRIERS: &[&str] = &[
    "command", "doas", "env", "exec", "ionice", "nice", "nohup", "setsid", "stdbuf", "sudo", "time",
];

/// Commands that only prepare: the title is about the next command.
const PREPARATIONS: &[&str] = &[
    ":", "cd", "export", "pushd", "set", "source", ".", "true", "umask",
];

/// Tools whose second word says what they do, and whose third says to what.
const WITH_SUBCOMMAND: &[&str] = &[
    "apt",
    "apt-get",
    "brew",
    "bun",
    "cargo",
    "dnf",
    "docker",
    "gh",
    "git",
    "go",
    "helm",
    "ip",
    "kubectl",
    "make",
    "npm",
    "pip",
    "pip3",
    "pnpm",
    "podman",
    "systemctl",
    "terraform",
    "uv",
    "yarn",
];

const MAX_CHARS: usize = 60;

/// Returns a title such as `git push origin`, `python server.py` or `cargo test`, or only the
/// command's first word if there is nothing more to say.
pub fn title(command: &str) -> String {
    let segments: Vec<Vec<String>> = segments(command)
        .into_iter()
        .map(without_carriers)
        .filter(|words| !words.is_empty())
        .collect();
    let chosen = segments
        .iter()
        .find(|words| !PREPARATIONS.contains(&words[0].as_str()))
        .or(segments.first());
    let Some(words) = chosen else {
        return String::new();
    };
    let verb = base_name(&words[0]);
    let wanted = 1 + usize::from(WITH_SUBCOMMAND.contains(&verb));
    let targets = words[1..]
        .iter()
        .take_while(|word| !is_redirection(word))
        .filter(|word| !word.starts_with('-'))
        .take(wanted)
        .map(|word| base_name(word));
    let mut text = verb.to_string();
    for target in targets {
        text.push(' ');
        text.push_str(target);
    }
    shorten(&text)
}

/// Removes carriers, with their assignments and options.
fn without_carriers(words: Vec<String>) -> Vec<String> {
    let mut after_carrier = false;
    words
        .into_iter()
        .skip_while(|word| {
            let is_carrier = CARRIERS.contains(&base_name(word));
            let skipped =
                is_carrier || is_assignment(word) || (after_carrier && word.starts_with('-'));
            after_carrier |= is_carrier;
            skipped
        })
        .collect()
}

fn is_redirection(word: &str) -> bool {
    word.trim_start_matches(|character: char| character.is_ascii_digit())
        .starts_with(['<', '>'])
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Returns the last part of a path. Other words, and URLs, stay as they are.
fn base_name(word: &str) -> &str {
    if word.contains("://") {
        return word;
    }
    word.trim_end_matches('/')
        .rsplit('/')
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or(word)
}

/// Splits a command into segments of words, without quotes. This is only as exact as a title needs.
fn segments(command: &str) -> Vec<Vec<String>> {
    let mut segments = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = command.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                word.get_or_insert_default().extend(characters.next());
            }
            (None, ';' | '&' | '|' | '\n' | '(' | ')') => {
                end_word(&mut segments, &mut word);
                segments.push(Vec::new());
            }
            (None, _) if character.is_whitespace() => end_word(&mut segments, &mut word),
            _ => word.get_or_insert_default().push(character),
        }
    }
    end_word(&mut segments, &mut word);
    segments
}

fn end_word(segments: &mut [Vec<String>], word: &mut Option<String>) {
    if let (Some(segment), Some(word)) = (segments.last_mut(), word.take()) {
        segment.push(word);
    }
}

/// Makes a single short line without control characters.
fn shorten(text: &str) -> String {
    let mut characters = text
        .chars()
        .map(|character| {
            if character.is_whitespace() {
                ' '
            } else {
                character
            }
        })
        .filter(|character| !character.is_control());
    let mut out: String = characters.by_ref().take(MAX_CHARS).collect();
    if characters.next().is_some() {
        out.pop();
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_say_verb_and_target() {
        for (command, expected) in [
            ("ls", "ls"),
            ("ls -la /var/log", "ls log"),
            ("git push origin main", "git push origin"),
            ("git status --short", "git status"),
            ("cd /srv/app && npm run build", "npm run build"),
            ("cd /srv", "cd srv"),
            (
                "PORT=80 NODE_ENV=x node server.js --port 1",
                "node server.js",
            ),
            (
                "sudo -E env A=b /usr/bin/python3 tools/x.py",
                "python3 x.py",
            ),
            ("nohup ./run.sh > out.log 2>&1 &", "run.sh"),
            ("sleep 5; echo done", "sleep 5"),
            (
                "curl https://example.com/a/b",
                "curl https://example.com/a/b",
            ),
            ("grep 'a b' file.txt", "grep a b"),
            ("echo \"it's\" fine", "echo it's"),
            ("(cargo test -p x) | tail", "cargo test x"),
            ("echo 'a\u{1b}[31m\nb'", "echo a[31m b"),
            ("", ""),
            (" ; && ", ""),
            ("'unclosed quote", "unclosed quote"),
            ("a\\", "a"),
        ] {
            assert_eq!(title(command), expected, "{command}");
        }
        assert_eq!(title(&"x".repeat(500)).chars().count(), MAX_CHARS);
    }
}
