//! Finds the file that an interpreter would run.

use interlock_programs::names::program_name;

use super::Language;

/// Options of node with a value as the next word, unless `=` attaches it.
const NODE_VALUES: &[&str] = &[
    "-C",
    "-r",
    "--conditions",
    "--diagnostic-dir",
    "--disable-warning",
    "--dns-result-order",
    "--env-file",
    "--env-file-if-exists",
    "--experimental-default-type",
    "--experimental-loader",
    "--icu-data-dir",
    "--import",
    "--input-type",
    "--inspect-port",
    "--loader",
    "--localstorage-file",
    "--max-http-header-size",
    "--openssl-config",
    "--redirect-warnings",
    "--require",
    "--title",
    "--trace-event-categories",
    "--unhandled-rejections",
    "--watch-path",
];

/// Options with which node runs no file, or no file that an operand names.
const NODE_WITHOUT_FILE: &[&str] = &[
    "-",
    "-e",
    "-h",
    "-i",
    "-p",
    "-pe",
    "-v",
    "--eval",
    "--help",
    "--interactive",
    "--print",
    "--run",
    "--test",
    "--v8-options",
    "--version",
];

/// The language and the script of a command, as the command names it.
pub(super) fn script(argv: &[String]) -> Option<(Language, &str)> {
    let (first, rest) = argv.split_first()?;
    let name = program_name(first);
    let stem =
        name.trim_end_matches(|character: char| character.is_ascii_digit() || character == '.');
    let (language, word, extensions) = match stem {
        "python" | "pypy" => (Language::Python, of_python(rest)?, &["py"][..]),
        "node" | "nodejs" => (
            Language::JavaScript,
            of_node(rest)?,
            &["js", "mjs", "cjs"][..],
        ),
        _ => return None,
    };
    let (_, extension) = word.rsplit_once('.')?;
    extensions.contains(&extension).then_some((language, word))
}

fn of_python(words: &[String]) -> Option<&str> {
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-" => return None,
            "--" => return words.next(),
            "--check-hash-based-pycs" => {
                words.next();
            }
            _ if word.starts_with("--") => return None,
            _ => {
                let Some(cluster) = word.strip_prefix('-') else {
                    return Some(word);
                };
                for (index, option) in cluster.char_indices() {
                    match option {
                        // These run code or a module instead of a file, or print something only.
                        'c' | 'm' | 'h' | 'V' | '?' => return None,
                        'W' | 'X' | 'Q' => {
                            if index + 1 == cluster.len() {
                                words.next();
                            }
                            break;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    None
}

fn of_node(words: &[String]) -> Option<&str> {
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let option = word.split_once('=').map_or(word, |(option, _)| option);
        if word == "--" {
            return words.next();
        }
        if NODE_WITHOUT_FILE.contains(&option) {
            return None;
        }
        if NODE_VALUES.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
    None
}
