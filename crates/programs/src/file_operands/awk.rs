//! Decides which `awk` programs only print what they read.
//!
//! The program is parsed as `gawk`, `mawk`, `busybox` and the original `awk` all parse it. Where
//! they could differ, the program is refused. Redirections, pipes, and names that reach files,
//! programs or the environment are refused wherever they could take effect: not in texts, patterns
//! and comments, and `>` only where it cannot be a comparison.

use std::iter::Peekable;

/// Functions and variables that reach no file, no program and no environment.
const NAMES: &[&str] = &[
    "BEGIN",
    "END",
    "FIELDWIDTHS",
    "FILENAME",
    "FNR",
    "FPAT",
    "FS",
    "IGNORECASE",
    "NF",
    "NR",
    "OFS",
    "ORS",
    "RLENGTH",
    "RS",
    "RSTART",
    "RT",
    "SUBSEP",
    "atan2",
    "cos",
    "exp",
    "gensub",
    "gsub",
    "index",
    "int",
    "length",
    "log",
    "match",
    "rand",
    "sin",
    "split",
    "sprintf",
    "sqrt",
    "srand",
    "strftime",
    "sub",
    "substr",
    "systime",
    "tolower",
    "toupper",
];

/// Words that reach elsewhere without parentheses, or that change which files are read.
const REACHES: &[&str] = &[
    "close",
    "eval",
    "fflush",
    "func",
    "function",
    "getline",
    "include",
    "load",
    "namespace",
    "nextfile",
    "system",
];

/// Words after which parentheses are not a call.
const STATEMENTS: &[&str] = &[
    "case", "delete", "do", "else", "exit", "for", "if", "in", "print", "printf", "return",
    "switch", "while",
];

const REDIRECTS: &str = "the program may write, read another file or start a program";
const REACHES_FAR: &str =
    "the program uses a name that may reach files, programs or the environment";
const NOT_UNDERSTOOD: &str = "the program is not understood, so it may do more than print";

/// Returns why the program may do more than print what it reads.
pub(super) fn reach(program: &str) -> Option<&'static str> {
    let mut scan = AwkScan {
        rest: program,
        before: PrecedingToken::Start,
        braces: 0,
        parentheses: 0,
    };
    loop {
        match scan.token() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(why) => return Some(why),
        }
    }
}

/// The kind of the preceding token, which decides whether `/` begins a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PrecedingToken {
    /// The beginning, an operator or a statement: a pattern may follow.
    Start,
    /// A value: a `/` divides it.
    Value,
    /// `)`: a value, or the end of the condition of a statement.
    Closed,
    /// `++`, `--`, `$` or a function without parentheses: implementations may differ.
    Unclear,
}

struct AwkScan<'a> {
    rest: &'a str,
    before: PrecedingToken,
    braces: usize,
    parentheses: usize,
}

impl AwkScan<'_> {
    /// Reads one token. Returns whether there was one.
    fn token(&mut self) -> Result<bool, &'static str> {
        let Some(first) = self.rest.chars().next() else {
            return Ok(false);
        };
        match first {
            ' ' | '\t' => self.skip(1),
            '#' => {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.skip(end);
            }
            '"' => {
                self.delimited('"')?;
                self.before = PrecedingToken::Value;
            }
            '/' => self.slash()?,
            'a'..='z' | 'A'..='Z' | '_' => self.word()?,
            '0'..='9' | '.' => {
                let digits = self
                    .rest
                    .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
                // `2system(x)` is a number and a call. `1e3` is refused together with it.
                if digits.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                    return Err(NOT_UNDERSTOOD);
                }
                self.rest = digits;
                self.before = PrecedingToken::Value;
            }
            _ => self.sign(first)?,
        }
        Ok(true)
    }

    fn sign(&mut self, first: char) -> Result<(), &'static str> {
        let is_double = self.rest[first.len_utf8()..].starts_with(first);
        let mut length = 1;
        let mut before = PrecedingToken::Start;
        match first {
            '&' | '|' if is_double => length = 2,
            '+' | '-' if is_double => {
                length = 2;
                before = PrecedingToken::Unclear;
            }
            '\n' | ';' | ',' | '!' | '~' | '?' | ':' | '=' | '*' | '%' | '^' | '<' | '[' | '+'
            | '-' => {}
            '{' => self.braces += 1,
            '}' => self.braces = self.braces.checked_sub(1).ok_or(NOT_UNDERSTOOD)?,
            '(' => self.parentheses += 1,
            ')' => {
                self.parentheses = self.parentheses.checked_sub(1).ok_or(NOT_UNDERSTOOD)?;
                before = PrecedingToken::Closed;
            }
            ']' => before = PrecedingToken::Value,
            '$' => before = PrecedingToken::Unclear,
            // After `print`, `>` writes. It compares before the braces and in parentheses, where no
            // statement can be.
            '>' if self.rest.starts_with(">=") => length = 2,
            '>' if !is_double && (self.braces == 0 || self.parentheses > 0) => {}
            '>' | '|' => return Err(REDIRECTS),
            _ => return Err(NOT_UNDERSTOOD),
        }
        self.skip(length);
        self.before = before;
        Ok(())
    }

    fn word(&mut self) -> Result<(), &'static str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, behind) = self.rest.split_at(end);
        let is_statement = STATEMENTS.contains(&word);
        let is_called = behind.trim_start_matches([' ', '\t']).starts_with('(') && !is_statement;
        // No implementation has a variable with a name of one letter.
        let is_upper = word.len() > 1 && word.starts_with(|c: char| c.is_ascii_uppercase());
        let is_known = NAMES.contains(&word);
        if REACHES.contains(&word) || ((is_called || is_upper) && !is_known) {
            return Err(REACHES_FAR);
        }
        // `for (print > FILE; …)` has a statement in parentheses.
        if matches!(word, "print" | "printf") && self.parentheses > 0 {
            return Err(REDIRECTS);
        }
        let is_function = is_known && !is_upper;
        self.skip(end);
        self.before = match (is_statement, is_function) {
            (true, _) => PrecedingToken::Start,
            (false, true) => PrecedingToken::Unclear,
            (false, false) => PrecedingToken::Value,
        };
        Ok(())
    }

    fn slash(&mut self) -> Result<(), &'static str> {
        match self.before {
            PrecedingToken::Start => {
                self.delimited('/')?;
                self.before = PrecedingToken::Value;
            }
            // A pattern would need another `/`.
            PrecedingToken::Closed if self.rest[1..].contains('/') => return Err(NOT_UNDERSTOOD),
            // Some implementations begin a pattern after another pattern, or after `x in y`. That
            // changes the meaning of the rest only if a text or a comment could be part of the
            // pattern.
            PrecedingToken::Value
                if self.rest[1..].contains('/') && self.rest.contains(['"', '#']) =>
            {
                return Err(NOT_UNDERSTOOD);
            }
            PrecedingToken::Closed | PrecedingToken::Value => {
                self.skip(1);
                self.before = PrecedingToken::Start;
            }
            PrecedingToken::Unclear => return Err(NOT_UNDERSTOOD),
        }
        Ok(())
    }

    /// Skips a text or a pattern on one line.
    fn delimited(&mut self, delimiter: char) -> Result<(), &'static str> {
        let mut characters = self.rest.char_indices().skip(1).peekable();
        while let Some((at, character)) = characters.next() {
            match character {
                '\n' | '\r' => break,
                '\\' => match characters.next() {
                    None | Some((_, '\n' | '\r')) => break,
                    Some(_) => {}
                },
                _ if character == delimiter => {
                    self.skip(at + character.len_utf8());
                    return Ok(());
                }
                '[' if delimiter == '/' => pass_brackets(&mut characters)?,
                _ => {}
            }
        }
        Err(NOT_UNDERSTOOD)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }
}

/// Skips a bracket expression of a pattern. Some implementations let `/` end a pattern inside one,
/// and they disagree about where one ends. So it may contain no `/` and no bracket except whole
/// classes such as `[:alpha:]`, and it may not begin with `]`.
fn pass_brackets(
    characters: &mut Peekable<impl Iterator<Item = (usize, char)>>,
) -> Result<(), &'static str> {
    characters.next_if(|(_, next)| *next == '^');
    if characters.peek().is_some_and(|(_, next)| *next == ']') {
        return Err(NOT_UNDERSTOOD);
    }
    while let Some((_, character)) = characters.next() {
        match character {
            ']' => return Ok(()),
            '[' => pass_class(characters)?,
            '\\' => match characters.next() {
                None | Some((_, '\n' | '\r' | '[' | ']')) => break,
                Some(_) => {}
            },
            '/' | '\n' | '\r' => break,
            _ => {}
        }
    }
    Err(NOT_UNDERSTOOD)
}

/// Skips `:alpha:]`, after its opening bracket.
fn pass_class(
    characters: &mut Peekable<impl Iterator<Item = (usize, char)>>,
) -> Result<(), &'static str> {
    let mut has = |wanted: char| characters.next_if(|(_, next)| *next == wanted).is_some();
    if !has(':') {
        return Err(NOT_UNDERSTOOD);
    }
    while characters
        .next_if(|(_, next)| next.is_ascii_lowercase())
        .is_some()
    {}
    let mut has = |wanted: char| characters.next_if(|(_, next)| *next == wanted).is_some();
    if has(':') && has(']') {
        Ok(())
    } else {
        Err(NOT_UNDERSTOOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyday_programs_only_print() {
        for program in [
            "{print $1}",
            "/ERROR/ {print $2}",
            "NR>=10 && NR<=20",
            r#"{printf "%s\n", $1}"#,
            "{ if ($2 > 10) print $1 }",
            "length > 80",
            r#"BEGIN{FS=","} NR>1 {print $1 "\t" $2}"#,
            r#"{print "Total: " $1}"#,
            r#"$1 == "ERROR" || $1 == "WARN""#,
            "{count[$1]++} END {for (k in count) print k, count[k]}",
            "{s+=$1} END {print s/NR}",
            "{S+=$1} END {print (S+1)/2}",
            "/^[[:space:]]*#/ {next} {print}",
            "/start/,/end/",
            "{print $1/2, $2/4}",
            r#"/^[^[:space:]a-z\/]+$/ {print "x"}"#,
            r#"{gsub(/[^a-z]/, ""); print toupper($0)} # a comment with system()"#,
            "!seen[$0]++",
            r#"{print ($3 > 5 ? "High" : "Low")}"#,
            "$1 ~ /^GET|POST$/ && $9 >= 500",
        ] {
            assert_eq!(reach(program), None, "{program}");
        }
    }

    #[test]
    fn whatever_may_write_read_or_start_is_refused() {
        for program in [
            r#"{print > "f"}"#,
            r#"{print >> "f"}"#,
            "{print $1 > $2}",
            r#"{print("a") > "f"}"#,
            r#"BEGIN{for (print "x" > "f"; 0; ) ;}"#,
            r#"BEGIN{for (printf("x") > "f"; 0; ) ;}"#,
            r#"{print | "sh"}"#,
            r#"{print |& "sh"}"#,
            r#"{"id" | getline x; print x}"#,
            "{getline < $1}",
            r#"{system("id")}"#,
            r#"{system ("id")}"#,
            "{print ENVIRON[$1]}",
            "BEGIN{for (k in ENVIRON) print k}",
            "{print PROCINFO[$1]}",
            "BEGIN{ARGV[1]=$1}",
            r#"@load "x"; {print}"#,
            r#"{f = "system"; @f($1)}"#,
            "function f(x) {return x} {print f($1)}",
            // A quote in a pattern begins no text, and none in a text a pattern.
            r#"/"/ {system("id")} /"/"#,
            r#"{print "/"; system("id"); print "/"}"#,
            r#"{x = "\""; system("id"); y = "\""}"#,
            r#"/[/]"/ {print | "sh"} /"/"#,
            r#"/[]/"]/ {print | "sh"} /"/"#,
            // Where these bracket expressions end depends on the implementation.
            r#"/[[:alpha:]/] "/ ; system("id") #"/"#,
            r#"/[[.a.]/] "/ ; system("id") #"/"#,
            r#"/[[:al/] "/ ; system("id") #"/"#,
            r#"/[\]/] "/ ; system("id") #"/"#,
            r#"/[^]/] "/ ; system("id") #"/"#,
            // Some begin a pattern here, others divide.
            r#"/a/ /"/ ; system("id") #"/"#,
            r#"x in y /"/ ; system("id") #"/"#,
            // Whether these slashes divide depends on the implementation.
            r#"{if (1) /"/; system("id") /"/}"#,
            r#"{x++ /"/; system("id") /"/}"#,
            r#"{length /"/; system("id") /"/}"#,
            r#"{$/"/; system("id") /"/}"#,
            "{print \"a\nb\"}",
            "{print \\\n > $1}",
            "} {print}",
            r#"{x = 2system("id")}"#,
            r#"{x = 1e3system("id")}"#,
            r#"{x = 0x1system("id")}"#,
            "{print 'a'}",
            "BEGINFILE {print}",
        ] {
            assert!(reach(program).is_some(), "{program}");
        }
    }
}
