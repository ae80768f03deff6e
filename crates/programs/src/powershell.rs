//! Finds the commands of PowerShell and cmd, only to describe them. The analysis never looks
//! through them to trust a command.

/// Parameters with a value that is not code.
const VALUES: &[&str] = &[
    "configurationfile",
    "configurationname",
    "custompipename",
    "encodedarguments",
    "executionpolicy",
    "inputformat",
    "outputformat",
    "psconsolefile",
    "settingsfile",
    "token",
    "utctimestamp",
    "version",
    "windowstyle",
    "workingdirectory",
];
/// Spellings that are not prefixes of their parameter.
const ALIASES: &[(&str, &str)] = &[
    ("ep", "executionpolicy"),
    ("ex", "executionpolicy"),
    ("if", "inputformat"),
    ("of", "outputformat"),
    ("wd", "workingdirectory"),
    ("ea", "encodedarguments"),
    ("ec", "encodedcommand"),
    ("e", "encodedcommand"),
    ("cwa", "commandwithargs"),
    ("c", "command"),
    ("f", "file"),
    ("w", "windowstyle"),
    ("v", "version"),
];
/// Parameters whose value is the code that runs.
const CODE: &[&str] = &["command", "commandwithargs", "encodedcommand", "file"];

/// Returns the code, if any: an argument of PowerShell, or the whole rest of the line for cmd.
pub(crate) fn inline_text(shell: &str, argv: &[String]) -> Option<String> {
    if shell == "cmd" {
        return cmd_index(argv).map(|index| argv[index..].join(" "));
    }
    parameter_index(argv).map(|index| argv[index].clone())
}

fn parameter_index(argv: &[String]) -> Option<usize> {
    let mut index = 1;
    while let Some(token) = argv.get(index) {
        // The first word that is not a parameter is a script, and the following words belong to it.
        let parameter = token.strip_prefix(['-', '/'])?;
        let parameter = parameter
            .strip_prefix('-')
            .unwrap_or(parameter)
            .to_lowercase();
        if parameter.is_empty() || parameter.contains('/') {
            return None;
        }
        let name = parameter_name(&parameter);
        if name.is_some_and(|name| CODE.contains(&name)) {
            return (index + 1 < argv.len()).then_some(index + 1);
        }
        index += if name.is_some_and(|name| VALUES.contains(&name)) {
            2
        } else {
            1
        };
    }
    None
}

fn parameter_name(written: &str) -> Option<&'static str> {
    if let Some((_, name)) = ALIASES.iter().find(|(alias, _)| *alias == written) {
        return Some(name);
    }
    CODE.iter()
        .chain(VALUES)
        .find(|name| name.starts_with(written))
        .copied()
}

fn cmd_index(argv: &[String]) -> Option<usize> {
    let position = argv.iter().skip(1).position(|token| {
        matches!(
            token.to_lowercase().as_str(),
            "/c" | "/k" | "/r" | "-c" | "-k"
        )
    })?;
    (position + 2 < argv.len()).then_some(position + 2)
}
