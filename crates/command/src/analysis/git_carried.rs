//! Finds commands in the arguments of git. Every result can only add commands to inspect.

/// A command that git starts.
pub(super) enum GitCarried {
    Words(Vec<String>),
    /// Text for a shell.
    Text(String),
    /// The name of an alias is visible, but not its meaning.
    Unseen,
}

/// Options before the subcommand whose value is the next word.
const WITH_VALUE: [&str; 8] = [
    "-C",
    "-c",
    "--attr-source",
    "--config-env",
    "--exec-path",
    "--git-dir",
    "--namespace",
    "--work-tree",
];

/// Returns the commands that git would start. `name` is the program's name, because `git-push`
/// contains the subcommand.
pub(super) fn commands(argv: &[String], name: &str) -> Vec<GitCarried> {
    if let Some(subcommand) = name.strip_prefix("git-") {
        let words = [
            vec!["git".to_owned(), subcommand.to_owned()],
            argv[1..].to_vec(),
        ];
        return vec![GitCarried::Words(words.concat())];
    }
    let mut found = Vec::new();
    let mut aliases: Vec<(&str, Option<&str>)> = Vec::new();
    let mut index = 1;
    while let Some(word) = argv.get(index).filter(|word| word.starts_with('-')) {
        let next = argv.get(index + 1).map(String::as_str);
        match word.as_str() {
            "-c" => aliases.extend(next.and_then(alias).map(|(name, text)| (name, Some(text)))),
            "--config-env" => {
                aliases.extend(next.and_then(alias).map(|(name, _)| (name, None)));
            }
            _ => {
                let setting = word.strip_prefix("--config-env=");
                aliases.extend(setting.and_then(alias).map(|(name, _)| (name, None)));
            }
        }
        index += 1 + usize::from(WITH_VALUE.contains(&word.as_str()));
    }
    let Some(subcommand) = argv.get(index) else {
        return found;
    };
    let rest = &argv[index + 1..];
    for (name, text) in aliases {
        if !name.eq_ignore_ascii_case(subcommand) {
            continue;
        }
        found.push(match text {
            None => GitCarried::Unseen,
            Some(text) => match text.trim_start().strip_prefix('!') {
                Some(text) => GitCarried::Text(text.to_owned()),
                None => {
                    let words = text.split_whitespace().map(str::to_owned);
                    let words = std::iter::once("git".to_owned()).chain(words);
                    GitCarried::Words(words.chain(rest.iter().cloned()).collect())
                }
            },
        });
    }
    let behind = |word: &str| {
        let at = rest.iter().position(|other| other == word);
        at.map(|at| rest[at + 1..].to_vec())
    };
    match subcommand.as_str() {
        "bisect" => found.extend(behind("run").map(GitCarried::Words)),
        "submodule" => {
            let command = behind("foreach").unwrap_or_default();
            let command = command.into_iter().skip_while(|word| word.starts_with('-'));
            let command: Vec<String> = command.collect();
            found.push(match command.as_slice() {
                // Git passes a single word to a shell.
                [text] => GitCarried::Text(text.clone()),
                _ => GitCarried::Words(command),
            });
        }
        "rebase" => found.extend(texts(rest, "-x", "--exec")),
        "difftool" => found.extend(texts(rest, "-x", "--extcmd")),
        _ => {}
    }
    found.retain(|one| !matches!(one, GitCarried::Words(words) if words.is_empty()));
    found
}

/// Parses `alias.NAME=VALUE`. Sections of settings ignore case.
fn alias(setting: &str) -> Option<(&str, &str)> {
    let (key, value) = setting.split_once('=')?;
    let (section, name) = key.split_once('.')?;
    section
        .eq_ignore_ascii_case("alias")
        .then_some((name, value))
}

/// Returns the values of an option that takes text for a shell.
fn texts(words: &[String], short: &str, long: &str) -> Vec<GitCarried> {
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let attached = word
            .strip_prefix(long)
            .and_then(|rest| rest.strip_prefix('='))
            .or_else(|| word.strip_prefix(short).filter(|rest| !rest.is_empty()));
        let next = words.get(index + 1).map(String::as_str);
        let is_separate = word == short || word == long;
        let value = attached.or_else(|| next.filter(|_| is_separate));
        found.extend(value.map(|text| GitCarried::Text(text.to_owned())));
    }
    found
}
