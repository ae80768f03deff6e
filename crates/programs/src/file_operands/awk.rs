//! Which `awk` programs only print what they read.
//!
//! The program is read as `gawk`, `mawk`, `busybox` and the original `awk` all read it; where they could differ, it
//! is refused. Redirections, pipes, and names that reach files, programs or the environment are refused wherever
//! they could be ones: not in texts, patterns and comments, and `>` only where it cannot compare.

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

/// Words that reach elsewhere without parentheses, or change which files are read.
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

/// Words behind which parentheses are no call.
const STATEMENTS: &[&str] = &[
    "case", "delete", "do", "else", "exit", "for", "if", "in", "print", "printf", "return",
    "switch", "while",
];

const REDIRECTS: &str = "the program may write, read another file or start a program";
const REACHES_FAR: &str =
    "the program uses a name that may reach files, programs or the environment";
const NOT_UNDERSTOOD: &str = "the program is not understood, so it may do more than print";

/// Why the program may do more than print what it reads.
pub(super) fn reach(program: &str) -> Option<&'static str> {
    let mut scan = AwkScan {
        rest: program,
        before: SlashPosition::Start,
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

/// What stands in front of the next token, as far as it decides whether `/` begins a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlashPosition {
    /// The beginning, an operator, a statement: a pattern may follow.
    Start,
    /// A value: what follows divides it.
    Value,
    /// `)`: a value, or the condition of a statement.
    Closed,
    /// `++`, `--`, `$` or a function without parentheses: implementations may differ.
    Unclear,
}

struct AwkScan<'a> {
    rest: &'a str,
    before: SlashPosition,
    braces: usize,
    parentheses: usize,
}

impl AwkScan<'_> {
    /// Reads one token. Whether there was one.
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
                self.before = SlashPosition::Value;
            }
            '/' => self.slash()?,
            'a'..='z' | 'A'..='Z' | '_' => self.word()?,
            '0'..='9' | '.' => {
                let digits = self
                    .rest
                    .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
                // `2system(x)` is a number and a call; `1e3` is left out with it.
                if digits.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                    return Err(NOT_UNDERSTOOD);
                }
                self.rest = digits;
                self.before = SlashPosition::Value;
            }
            _ => self.sign(first)?,
        }
        Ok(true)
    }

    fn sign(&mut self, first: char) -> Result<(), &'static str> {
        let is_double = self.rest[first.len_utf8()..].starts_with(first);
        let mut length = 1;
        let mut before = SlashPosition::Start;
        match first {
            '+' | '-' if is_double => {
                length = 2;
                before = SlashPosition::Unclear;
            }
            '\n' | ';' | ',' | '!' | '~' | '?' | ':' | '=' | '*' | '%' | '^' | '<' | '[' | '+'
            | '-' => {}
            '&' | '|' if is_double => length = 2,
            '{' => self.braces += 1,
            '}' => self.braces = self.braces.checked_sub(1).ok_or(NOT_UNDERSTOOD)?,
            '(' => self.parentheses += 1,
            ')' => {
                self.parentheses = self.parentheses.checked_sub(1).ok_or(NOT_UNDERSTOOD)?;
                before = SlashPosition::Closed;
            }
            ']' => before = SlashPosition::Value,
            '$' => before = SlashPosition::Unclear,
            // `>` behind `print` writes; it compares in front of the braces and in parentheses, where no
            // statement stands.
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
        // No variable of an implementation has a name of one letter.
        let is_upper = word.len() > 1 && word.starts_with(|c: char| c.is_ascii_uppercase());
        let is_known = NAMES.contains(&word);
        if REACHES.contains(&word) || ((is_called || is_upper) && !is_known) {
            return Err(REACHES_FAR);
        }
        // `for (print > FILE; …)` is a statement in parentheses.
        if matches!(word, "print" | "printf") && self.parentheses > 0 {
            return Err(REDIRECTS);
        }
        let is_function = is_known && !is_upper;
        self.skip(end);
        self.before = match (is_statement, is_function) {
            (true, _) => SlashPosition::Start,
            (false, true) => SlashPosition::Unclear,
            (false, false) => SlashPosition::Value,
        };
        Ok(())
    }

    fn slash(&mut self) -> Result<(), &'static str> {
        match self.before {
            SlashPosition::Start => {
                self.delimited('/')?;
                self.before = SlashPosition::Value;
            }
            // As a pattern it would need a further one.
            SlashPosition::Closed if self.rest[1..].contains('/') => return Err(NOT_UNDERSTOOD),
            SlashPosition::Closed | SlashPosition::Value => {
                self.skip(1);
                self.before = SlashPosition::Start;
            }
            SlashPosition::Unclear => return Err(NOT_UNDERSTOOD),
        }
        Ok(())
    }

    /// A text or a pattern, on one line. Whether the delimiter ends a pattern inside `[…]` depends on the
    /// implementation.
    fn delimited(&mut self, delimiter: char) -> Result<(), &'static str> {
        let mut characters = self.rest.char_indices().skip(1).peekable();
        let mut in_brackets = false;
        while let Some((at, character)) = characters.next() {
            match character {
                '\n' | '\r' => break,
                '\\' => {
                    let escaped = characters.next().map(|(_, escaped)| escaped);
                    if matches!(escaped, None | Some('\n' | '\r')) {
                        break;
                    }
                }
                _ if character == delimiter && in_brackets => break,
                _ if character == delimiter => {
                    self.skip(at + character.len_utf8());
                    return Ok(());
                }
                '[' if delimiter == '/' && !in_brackets => {
                    in_brackets = true;
                    // Directly behind the bracket, `]` is one of the characters.
                    characters.next_if(|(_, next)| *next == '^');
                    characters.next_if(|(_, next)| *next == ']');
                }
                // `[[:alpha:]]`
                ']' if in_brackets && characters.peek().is_none_or(|(_, next)| *next != ']') => {
                    in_brackets = false;
                }
                _ => {}
            }
        }
        Err(NOT_UNDERSTOOD)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
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
