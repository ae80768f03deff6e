//! Finds the addresses of a repository's remotes in the text of git's configuration files.
//!
//! Only what the shield needs is read: addresses of remotes and submodules, and the prefixes that
//! git replaces in them. Includes are not followed.

/// The remotes of a repository, from all its configuration files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitRemotes {
    remotes: Vec<NamedUrl>,
    submodules: Vec<String>,
    rewrites: Vec<UrlRewrite>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedUrl {
    remote: String,
    url: String,
}

/// A rewrite: git uses `to` for addresses that begin with `from`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UrlRewrite {
    from: String,
    to: String,
}

impl GitRemotes {
    /// Reads the texts of configuration files and of `.gitmodules`.
    pub fn read<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Self::default();
        for text in texts {
            all.add(text);
        }
        all
    }

    fn add(&mut self, text: &str) {
        let mut section = (String::new(), String::new());
        for line in joined_lines(text) {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix('[') {
                let Some((header, rest)) = split_header(rest) else {
                    continue;
                };
                section = header;
                self.set(&section, rest);
            } else {
                self.set(&section, line);
            }
        }
    }

    fn set(&mut self, (section, name): &(String, String), line: &str) {
        let Some((key, value)) = line.split_once('=') else {
            return;
        };
        let (key, value) = (key.trim().to_ascii_lowercase(), plain_value(value));
        match (section.as_str(), key.as_str()) {
            ("remote", "url" | "pushurl") => self.remotes.push(NamedUrl {
                remote: name.clone(),
                url: value,
            }),
            ("submodule", "url") => self.submodules.push(value),
            ("url", "insteadof" | "pushinsteadof") => self.rewrites.push(UrlRewrite {
                from: value,
                to: name.clone(),
            }),
            _ => {}
        }
    }

    /// Returns every address that git may connect to for this repository word: those of the remote
    /// with that name, or the word itself.
    pub(crate) fn addresses_of(&self, word: &str) -> Vec<String> {
        let named = self.remotes.iter().filter(|remote| remote.remote == word);
        let urls: Vec<&str> = named.map(|remote| remote.url.as_str()).collect();
        if urls.is_empty() {
            return self.rewritten(word);
        }
        urls.into_iter()
            .flat_map(|url| self.rewritten(url))
            .collect()
    }

    /// Returns every address of the repository, without looking up which remote a branch belongs
    /// to.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let remotes = self.remotes.iter().map(|remote| remote.url.as_str());
        let submodules = self.submodules.iter().map(String::as_str);
        remotes
            .chain(submodules)
            .flat_map(|url| self.rewritten(url))
            .collect()
    }

    /// Returns every rewritten form of an address, or the address itself if no prefix matches. Some
    /// rewrites apply only to pushes.
    fn rewritten(&self, url: &str) -> Vec<String> {
        let rewrites = self.rewrites.iter().filter_map(|rewrite| {
            let rest = url.strip_prefix(rewrite.from.as_str())?;
            Some(format!("{}{rest}", rewrite.to))
        });
        let mut all: Vec<String> = rewrites.collect();
        if all.is_empty() {
            all.push(url.to_owned());
        }
        all
    }
}

/// Joins each line that ends in a backslash with the next line.
fn joined_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = String::new();
    for line in text.lines() {
        if let Some(part) = line.strip_suffix('\\') {
            open.push_str(part);
        } else {
            open.push_str(line);
            lines.push(std::mem::take(&mut open));
        }
    }
    lines.push(open);
    lines
}

/// Splits `remote "NAME"] rest` into the section, its name, and the rest of the line.
fn split_header(text: &str) -> Option<((String, String), &str)> {
    let Some((section, quoted)) = text.split_once('"').filter(|(section, _)| {
        // A quote after the bracket belongs to a value.
        !section.contains(']')
    }) else {
        let (section, rest) = text.split_once(']')?;
        return Some(((section.trim().to_ascii_lowercase(), String::new()), rest));
    };
    let mut name = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                let rest = quoted.get(at + 1..)?.trim_start().strip_prefix(']')?;
                return Some(((section.trim().to_ascii_lowercase(), name), rest));
            }
            '\\' => name.push(characters.next()?.1),
            other => name.push(other),
        }
    }
    None
}

/// Returns a value without its quotes, escapes and comment.
fn plain_value(text: &str) -> String {
    let mut value = String::new();
    let mut is_quoted = false;
    let mut characters = text.trim().chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => is_quoted = !is_quoted,
            '\\' => value.extend(characters.next()),
            '#' | ';' if !is_quoted => break,
            other => value.push(other),
        }
    }
    value.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPOSITORY: &str = r#"
[core]
	bare = false
[remote "origin"]
	url = https://example.org/a.git ; the public one
	pushurl = "git@example.org:a.git"
	fetch = +refs/heads/*:refs/remotes/origin/*
[remote "local"] url = ../other
[branch "main"]
	remote = origin
"#;

    #[test]
    fn remotes_are_read_with_comments_quotes_and_one_line_sections() {
        let remotes = GitRemotes::read([REPOSITORY]);
        let origin = remotes.addresses_of("origin");
        assert_eq!(
            origin,
            ["https://example.org/a.git", "git@example.org:a.git"]
        );
        assert_eq!(remotes.addresses_of("local"), ["../other"]);
        assert_eq!(remotes.addresses_of("unknown"), ["unknown"]);
    }

    #[test]
    fn prefixes_are_replaced_as_the_users_configuration_says() {
        let global = "[url \"git@example.org:\"]\n  insteadOf = https://example.org/\n";
        let remotes = GitRemotes::read([global, REPOSITORY]);
        assert_eq!(
            remotes.addresses_of("https://example.org/b"),
            ["git@example.org:b"]
        );
        assert!(
            remotes
                .addresses()
                .contains(&"git@example.org:a.git".to_owned())
        );
    }

    #[test]
    fn broken_files_are_read_as_far_as_they_go() {
        for text in [
            "[",
            "[remote \"",
            "[remote \"a\\",
            "[]=",
            "= =",
            "[a]b\\",
            "\\",
        ] {
            let _ = GitRemotes::read([text]);
        }
    }
}
