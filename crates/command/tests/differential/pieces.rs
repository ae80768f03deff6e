//! The pieces that command texts are made of. `ODD_…` tables hold what makes a line not plain, or
//! nearly so.

/// Programs whose names can also be those of functions, which are quick to record.
pub const NAMES: &[&str] = &[
    "run", "ls", "git", "rg", "cargo", "a", "b", "x1", "_f", "If", "TIME", "cdx",
];

/// Programs with odd names.
pub const ODD_NAMES: &[&str] = &[
    "g++", "apt-get", "a.out", "7z", "2", "é", "Ё", "あ", "%", "+x", "-x", "]", "a]", "@", ",",
    "a:b", "^", "run=", "=", "1=2", "!x", "a!", "./run", "bin/tool", "~/bin/tool", "22", "A-=1",
    "a,b", ".x", "..", "...", "é=1", "+=1", "*", "time2", "-p", "--", "A.B=1", "#", "]]x", "😀",
];

/// Interlock's own builtins.
pub const OURS: &[&str] = &[
    "cd", ":", "true", "false", "pwd", "test", "[",
];

/// Builtins of shells that are programs to Interlock.
pub const SHADOWED: &[&str] = &[
    "echo", "printf", "kill",
];

pub const SHELL_WORDS: &[&str] = &[
    "if", "then", "fi", "for", "in", "do", "done", "case", "esac", "while", "until", "select",
    "function", "coproc", "!", "[[", "]]", "{", "}", "eval", "exec", ".", "source", "export",
    "set", "command", "builtin", "exit", "local", "declare", "let", "wait", "trap", "alias",
    "chdir", "-", "return", "break", "time",
];

pub const ASSIGNED: &[&str] = &[
    "A", "B", "FOO", "_x", "N1",
];

/// What stands between words.
pub const BLANKS: &[&str] = &[
    " ", " ", " ", " ", "\t", "  ", " \\\n", " \\\n ", "\t\\\n",
];

pub const ODD_BLANKS: &[&str] = &[
    "\r", "\u{b}", "\u{c}", "\u{a0}", "\u{2003}", "\u{3000}", "\u{200b}", "\u{feff}", "\u{85}",
    "\u{2028}", "\\\n", "\\\n\\\n", "\\\r\n", "\r\n", "\\ ", "\\\t", "\u{ad}", " \\\n#", "\0",
    "\u{1}", "\u{7f}", "\u{1b}",
];

pub const CONNECTORS: &[&str] = &[
    "&&", "||", ";", "|", "&", "\n", " && ", " || ", " ; ", " | ", " & ", "\n\n", "&&\n", "||\n",
    "|\n ", " &&\n# c\n", ";\n", "&\n", "; # c\n", " &&\t", ";#c\n",
];

pub const ODD_CONNECTORS: &[&str] = &[
    ";;", "|&", "& &", "&&&", "|||", "; ;", ";&", "&|", "& ;", "&\\\n&", "|\\\n|", "&& \\\n", "!",
    "&!", ";;&", "\\\n&&", "\n&&", "\n|", "&&;", "&\\\n>/dev/null ", ";\\\n",
    " &\\\n", "|\\\n&", "|\\\n ",
];

pub const REDIRECTIONS: &[&str] = &[
    "2>&1", ">&2", "1>&2", ">/dev/null", "2>/dev/null", "</dev/null", "&>/dev/null",
    "> /dev/null", "2>> /dev/null", ">>/dev/null", "&>>/dev/null", "0</dev/null", ">& 2",
    "2>\t/dev/null", "1>/dev/null", ">&1", "< /dev/null", "2>&2",
];

pub const ODD_REDIRECTIONS: &[&str] = &[
    ">f", ">>f", "<a", "3>&1", "2>&-", ">|/dev/null", "<>/dev/null", "<<E", "<<<x", "<&0",
    ">/dev/null/x", ">/dev/'null'", "2 >&1", ">&1>/dev/null", "10>&1", ">(a)", "{x}>&1",
    "2>\\\n&1", ">/dev/null#", "02>&1", ">&12", ">& /dev/null", ">\"/dev/null\"",
    "> \\\n/dev/null", "2>&1x", ">/dev/nul\\l", ">~", ">&\u{a0}1",
];

/// Pieces of a word that need no quotes, glued to each other in any order.
pub const BARE: &[&str] = &[
    "a", "b.txt", "src/main.rs", "-n", "--flag", "2", "10", "x=y", "é", "Ё", "、", "あ", "#", "!",
    "%", "@", "+", ",", ".", "..", "/", ":", "=", "^", "-", "_", "]", "~", "HEAD~1", "A=1", "if",
    "time", "done", "cd", "echo", "run", "--x=1", "a:b", "file", "-", "--", "//", "./", "😀",
    "A+=1", "a\\b",
];

pub const GLOBS: &[&str] = &[
    "*", "?", "*.rs", "file[0-9]", "[ab]*", "[!a]*", "src/*", "*/*.rs", "./*", ".*", "[a-c]",
    "[a-]*", "[-a]", "[.]*", "**", "*/", "~/*", "[_,.]*", "[A-Z]", "*[0-9]", "file?", "[a-c-e]*",
    "s*/m*.rs", "[x]", "*/.", "?[!b]*", "*é*", "a[*]b", "~/.*", "*//*", "x//*", "http://h/?q", "x?y", "[.-]*",
];

pub const ODD_GLOBS: &[&str] = &[
    "[", "[]", "[]a]", "[^a]", "[[:alpha:]]", "[a", "a[", "[a/b]", "[z-a]", "['a']", "[\\a]",
    "[a-Z]", "[!]", "[é]", "+(a)", "!(a)", "[$x]", "[[.a.]]", "[a b]", "[!!a]", "*'", "[0-z]",
];

pub const TILDES: &[&str] = &[
    "~", "~/x", "~/'a b'", "~/",
];

pub const ODD_TILDES: &[&str] = &[
    "~root", "~+", "~-", "~\\/x", "~'/x'", "x=~", "a:~", "~:x", "\"~\"/x",
];

pub const SINGLE: &[&str] = &[
    "''", "'a'", "'a b'", "'*'", "'\"'", "'$x'", "'`'", "'\\'", "'\n'", "'#'", "'!'", "'~'",
    "'&&'", "'\t'", "'[a]'", "'{a,b}'", "'=' ", "'é'", "'\u{a0}'", "'a\\b'", "';'", "'>'", "'|'",
    "'A=1'", "'-'", "'\u{200b}'", "'\\n'",
];

pub const DOUBLE: &[&str] = &[
    "\"\"", "\"a\"", "\"a b\"", "\"*\"", "\"'\"", "\"\\\"\"", "\"\\$x\"", "\"\\`\"", "\"\\\\\"",
    "\"\\a\"", "\"\n\"", "\"#\"", "\"~\"", "\"\\'\"", "\"a\\*b\"", "\"{a,b}\"", "\"é\"",
    "\"\\é\"", "\"[a]\"", "\" \"", "\"\\\\\\\"\"", "\"=\"", "\"&\"", "\"\\\t\"",
];

pub const ESCAPED: &[&str] = &[
    "\\a", "\\ ", "\\\\", "\\'", "\\\"", "\\$", "\\`", "\\*", "\\?", "\\[", "\\~", "\\#", "\\!",
    "\\&", "\\|", "\\;", "\\>", "\\<", "\\(", "\\)", "\\{", "\\}", "\\=", "\\é", "\\\t", "\\-",
    "\\n", "\\2", "\\あ",
];

pub const DOLLAR_QUOTED: &[&str] = &[
    "$''", "$'a'", "$'a b'", "$'\\n'", "$'\\t'", "$'\\\\'", "$'\\''", "$'\\\"'", "$'\\?'", "$'*'",
    "$'\"'", "$'é'", "$'$x'", "$'\n'",
];

pub const ODD_PIECES: &[&str] = &[
    "$x", "${x}", "$(a)", "`a`", "$((1))", "$\"a\"", "\"$x\"", "\"`a`\"", "\"!\"", "$'\\x41'",
    "$'\\101'", "$'\\e'", "{a,b}", "{1..3}", "{}", "(", ")", "a(", "'", "\"", "\\", "a\\\nb", "$",
    "\"$\"", "\"a\\\nb\"", "$'\\u00e9'", "$'\\c'", "$'\\0'", "}", "{", "()", "$'\\\n'", "!!",
    "!$", "<(a)", "$*", "$'", "\"\\\"", "$'\\é'", "$'\\a'",
    "$'\\b'", "$'\\r'", "$'\\v'", "$'\\z'", "$'\\ '", "$'\\1'",
];

pub const COMMENTS: &[&str] = &[
    " # c", " #", " # it's \"", "\t# \\", " # a && b", " #\u{a0}", " # \\\nb", " #é\n",
];

/// Lines whose every corner once meant trouble in some shell or some parser of shells.
pub const PLAUSIBLE: &[&str] = &[
    "a 2>&1 | b 2>/dev/null",
    "a2>&1 b",
    "a >/dev/null 2>&1 &",
    "a &>/dev/null && b",
    "cd src && a *.rs | b 'c d' || run \"x y\"",
    "A=1 B='x y' run C=2",
    "A=1 2>&1 B=2 run",
    ">/dev/null a 2>&1 b",
    "time -p a b | run",
    "time A=1 run",
    "'if' a; \\if b; i\"f\" c",
    "'time' a; \\time b",
    "a # b\nb # c\n\nrun",
    "a \\\n  b \\\n  c && \\\n run",
    "a '' \"\" $'' b",
    "a 'it'\\''s' \"it's\"",
    "a ~ ~/x b~ HEAD~1 '~' \\~",
    "a [0-9] file[0-9] [!a]* ?",
    "[ -d src ] && a",
    "test -f a || run",
    "a&b&run",
    "a;b;run",
    "a|b|run",
    "a&&b||run",
    "a =b b= c=d -e=f",
    "a !b b! !c!",
    "a #b b#c d\\#e",
    "2>&1 a 2 >&2 3",
    "a '>' \\> \">\" '2>&1'",
    "a $'x\\ty\\'z' $'\\\\'",
    "a\t\tb\n\n\ta",
    "run 'a*' a\\* a* '*'* \"a\"*",
    "run \"a\\b\" 'a\\b' a\\\\b a\\b",
    "true && a || b && run",
    "false || a && b ; run & a",
    "echo a && printf '%s\\n' b && kill -0 1",
    "a ,b .c /d :e @f %g ^h +i -j _k ]l",
    "7z x; 2 3; g++ -o a.out b",
    "run 1>&2 2 >/dev/null 3",
];

/// Hardly anything else matters to a shell: any few of these in any order make a soup.
pub const SOUP: &[&str] = &[
    "a", "b", "a", " ", " ", " ", "\t", "\n", "\\", "\\\n", "'", "\"", "''", "'a'", "\"a\"", "$'", "#",
    "&", "|", ";", "<", ">", ">&1", "2>", "/dev/null", "1", "2", "=", "+", "A=", "~", "*", "?", "[",
    "]", "[a-b]", "!", "-", "/", ".", ":", "$", "`", "{", "}", "(", ")", "é", "time", "time ", "if",
    "cd", "-p", "^", ",", "%", "\u{a0}", "\r",
];

/// Files for globs to match: hidden ones, blanks, quotes, glob characters, not only ASCII.
pub const FILES: &[&str] = &[
    "a", "b", "b.txt", "c.rs", "file0", "file1", "fileX", ".hidden", "-n", "x y", "xzy", "é", "Ё",
    "a*b", "a\\b", "[x]", "#c", "q'q", "A", "=", "~", "src/main.rs", "src/lib.rs", "src/.secret",
    "tests/one.rs", "あ", "a-b", "]", "!x", "file,", "_under",
];

/// Recorders that are called by their path.
pub const PROGRAMS: &[&str] = &[
    "./run", "bin/tool", "./configure", "./gradlew", ".venv/bin/python",
];
