#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::PathBuf;

use super::*;

/// The line and the name of the finding.
fn seen(language: Language, text: &str) -> Option<(usize, String)> {
    let finding = language.check(text)?;
    let line = text[..finding.offset].matches('\n').count() + 1;
    let name = match finding.found {
        FoundLanguage::Variable(name) => format!("${name}"),
        FoundLanguage::Parameter(name) => format!("${name}"),
        FoundLanguage::Substitution => "$(".to_owned(),
        FoundLanguage::Line(word) => format!("line {word}"),
        FoundLanguage::Mark(mark) => format!("mark {mark}"),
    };
    Some((line, name))
}

#[track_caller]
fn mistakes(language: Language, table: &[(&str, usize, &str)]) {
    for (text, line, name) in table {
        let expected = Some((*line, (*name).to_owned()));
        assert_eq!(seen(language, text), expected, "{text}");
    }
}

#[track_caller]
fn fine(language: Language, texts: &[&str]) {
    for text in texts {
        assert_eq!(seen(language, text), None, "{text}");
    }
}

#[test]
fn shell_syntax_in_python_is_found_with_its_line() {
    mistakes(
        Language::Python,
        &[
            ("print($HOME)\n", 1, "$HOME"),
            ("import os\n\nx = $DM_JSON\n", 3, "$DM_JSON"),
            ("x = \"$A\"\ny = $B_2\n", 2, "$B_2"),
            ("x = ${HOME}/bin\n", 1, "$HOME"),
            ("x = ${HOME:-/root}\n", 1, "$HOME"),
            ("x = $lower\n", 1, "$lower"),
            ("x = $(date)\n", 1, "$("),
            ("x = $1\n", 1, "$1"),
            ("for x in $@:\n    pass\n", 1, "$@"),
            ("'''a\n$A\n'''\nb = f'{x}' + $C\n", 4, "$C"),
            ("x = f\"{d[\"$A\"]}\" + $B\n", 1, "$B"),
            ("x = r'\\' + $A'\ny = $B\n", 2, "$B"),
            ("# $A\nx = 1 # it's $B\ny = $C", 3, "$C"),
            ("\u{feff}print($HOME)\n", 1, "$HOME"),
            ("x = 1\r\ny = $A\r\n", 2, "$A"),
            ("export TOKEN=abc\nprint(1)\n", 1, "line export"),
            ("#!/usr/bin/env python3\nset -euo pipefail\n", 2, "line set"),
            ("\n\necho \"hello $USER\"\n", 3, "line echo"),
            ("cd /tmp && ls\n", 1, "line cd"),
            ("cat > x.py <<'EOF'\nprint(1)\nEOF\n", 1, "line cat"),
            ("python3 - <<PY\nprint(1)\n", 1, "line python3"),
            ("PY\nprint(1)\n", 1, "mark PY"),
            ("print(1)\nEOF\n", 2, "mark EOF"),
            ("print(1)\nEOF\n\n# end\n", 2, "mark EOF"),
        ],
    );
}

#[test]
fn good_python_is_left_alone() {
    fine(
        Language::Python,
        &[
            "",
            "#!/bin/sh\n''':'\nexec python3 \"$0\" \"$@\"\n'''\nprint(1)\n",
            "x = '$HOME'\ny = \"$HOME\"\nz = '''\n$HOME\n'''\nw = \"\"\"it's $A \"quoted\" $B\"\"\"\n",
            "# $HOME\nx = 1  # costs $PRICE\n",
            "x = r'$A' + R\"$B\" + b'$C' + Br'$D' + u'$E' + rb'''$F'''\n",
            "price = f'${cost}'\n",
            "x = f\"${cost:$>10}\" f'{v!r:>{w}} $A' F\"$B\"\n",
            "x = f'{{$A}}' + f'{a[\"$B\"]}' + f\"{a['$C']}\"\n",
            "x = f\"{a[\"$A\"]} $B {f\"{b[\"$C\"]} $D\"} $E\"\n",
            "x = f'''\n{\n  a  # it's $A\n} $B\n'''\n",
            "x = t'$A {b} $C'\n",
            "x = f'\\N{DOLLAR SIGN}$A {b}'\n",
            "x = 'it\\'s $A'\ny = \"\\\"$B\\\"\"\n",
            "x = r'\\' $A'\n",
            "x = 'a' \\\n  '$B'\n",
            "x = 'a\\\n$B'\n",
            "import re\nre.compile(r'^\\$[A-Z]+$')\nre.match('(?P<x>$)', s)\n",
            "from string import Template\nTemplate('$NAME').substitute(NAME=1)\n",
            "subprocess.run('echo $HOME', shell=True)\n",
            "sql = \"\"\"SELECT $1 FROM x WHERE a = ${b}\"\"\"\n",
            "print 'old $A'\nprint\"old $B\"\n",
            "x = not b'$A' if y else u'$B'\n",
            "def f(echo):\n    return echo\n",
            "EOF = object()\nx = EOF\n",
            "from tokens import EOF\nEOF\n",
            "export = 1\nset = 2\n",
            "set(x)\n",
            "cat = 1 << 2\n",
            "echo(1)\n",
            "cd = 1\n",
            "x = [\n  'EOF',\n]\n",
            // These are not understood; the interpreter reports the error.
            "x = 'open $A\ny = $B\n",
            "x = '''open $A\n",
        ],
    );
}

#[test]
fn shell_syntax_in_javascript_is_found_with_its_line() {
    mistakes(
        Language::JavaScript,
        &[
            ("console.log($HOME)\n", 1, "$HOME"),
            ("const a = 1;\nconst b = $DM_JSON;\n", 2, "$DM_JSON"),
            ("fetch($API_URL + '/x')\n", 1, "$API_URL"),
            ("const a = $LIST.split(',');\n", 1, "$LIST"),
            ("if ($DEBUG) { go(); }\n", 1, "$DEBUG"),
            ("while ($DEBUG) { go(); }\n", 1, "$DEBUG"),
            ("f(a, $TOKEN)\n", 1, "$TOKEN"),
            ("const x = a ? $ONE : 2\n", 1, "$ONE"),
            ("const x = { a: $ONE }\n", 1, "$ONE"),
            ("const x = `${$HOME}/bin`\n", 1, "$HOME"),
            ("const x = ${HOME};\n", 1, "$HOME"),
            ("#!/usr/bin/env node\nconst x = $HOME;\n", 2, "$HOME"),
            ("const r = /[/$A]$B/g;\nconst x = $C_D;\n", 2, "$C_D"),
            ("const q = a / b / $C_D;\n", 1, "$C_D"),
            (
                "let s = `a ${b ? `c ${d}` : ''} $E`;\nlet x = $F_G;\n",
                2,
                "$F_G",
            ),
            ("NODE <<'EOF'\nconsole.log(1)\n", 1, "line NODE"),
            ("\nNODE\nconsole.log(1)\n", 2, "mark NODE"),
            ("NODE -e 'x'\n", 1, "line NODE"),
            ("export TOKEN=abc\nfoo()\n", 1, "line export"),
            ("echo \"it\"\n", 1, "line echo"),
            ("echo it's\n", 1, "line echo"),
            ("set -e\nfoo()\n", 1, "line set"),
            ("console.log(1)\nEOF\n", 2, "mark EOF"),
            ("console.log(1);\nNODE\n", 2, "mark NODE"),
        ],
    );
}

#[test]
fn good_javascript_is_left_alone() {
    fine(
        Language::JavaScript,
        &[
            "",
            "#!/bin/sh\n':' //; exec node \"$0\" \"$@\"\nconsole.log(1)\n",
            "const a = '$HOME', b = \"$HOME\", c = `$HOME ${a} $B`;\n",
            "// $HOME\n/* $A\n$B */\nfoo(); // it's $C\n",
            "const r = /$A/; const s = /[/]$B/.test(x); return1(/\\/$C/)\n",
            "if (x) /$AB/.test(y)\n",
            "for (const x of y) /$AB/.test(x)\n",
            "const f = () => /$AB/; x = a ? /$CD/ : /$EF/;\n",
            "$('#id').on('click', $.noop); $el.hide(); jQuery($); $(HOME)\n",
            "const $HOME = process.env.HOME; use($HOME);\n",
            "let $A1, $B1; var c = 1, $D1; use($A1, $B1, $D1);\n",
            "function f($SCOPE, $HTTP = 1) { return $SCOPE + $HTTP }\n",
            "const f = ($SCOPE) => $SCOPE; const g = $ARG => $ARG;\n",
            "const { $AB, c: $CD, ...$EF } = x; const [$GH] = y; use($AB, $CD, $EF, $GH);\n",
            "({ $AB } = x); [$CD] = y; use($AB, $CD)\n",
            "import $AB, { $CD, x as $EF } from 'x'; import * as $GH from 'y'; use($AB, $CD, $EF, $GH)\n",
            "class A { $FIELD; #p = 1; static $COUNT = 0; $METHOD() { return this.$FIELD } get $NAME() { return 1 } }\n",
            "const x = { $KEY: 1, $METHOD() { return 2 }, 'a': 3 }; x.$KEY; x?.$OTHER;\n",
            "try { go() } catch ($ERR) { log($ERR) }\n",
            "for (const $ITEM of items) use($ITEM); for (let $I1 = 0; $I1 < 3; $I1++) use($I1);\n",
            "$GLOBAL = 1; use($GLOBAL); $COUNT += 1;\n",
            "global['$THING'] = 1; use($THING)\n",
            "if (typeof $MAYBE !== 'undefined') use($MAYBE)\n",
            "$FN(1); $TAG`x`\n",
            "function* $GEN() {} async function f() { for await (const x of $GEN()) use(x) }\n",
            "use($LATER); function $LATER() {} class $KLASS {} new $KLASS()\n",
            "$LABEL: for (;;) { break $LABEL }\n",
            "$_; $; $_ = 1; $a; $Abc; $1x; $__0\n",
            "switch (x) { case 1: y }\n",
            "const NODE = 1\nNODE.x\n",
            "NODE.init()\n",
            "NODE = 1\n",
            "NODE_ENV\n",
            "var NODE; NODE\n",
            "export const A=1\nexport default A\n",
            "export { A }\n",
            "set(1); echo('x'); cd\n",
            "const EOF = Symbol()\nEOF\n",
            "const t = `\nEOF`\n",
            "const html = `<script>$HOME</script>`; a = b\n++c\n",
            "x = a?.5:$; y = a ?? b; z = a?.b\n",
            "const s = 'a\\\n$AB';\n",
            "const s = \"\\\"$AB\";\n",
            "const a\u{a0}=\u{a0}1; const\u{a0}$NB = 2; use($NB)\n",
            "const ü = 1; const \\u0061b = 2; 𝒳 = 3\n",
            "<!-- $AB\n--> $CD\nfoo()\n",
            "class a extends ${FOO}\n",
            // An ambiguous slash ends the check.
            "x = {}\n/ $AB / 2\n",
            "i++ / $AB / 2; $CD\n",
            "const s = 'open $AB\nuse($CD)\n",
            "const t = `open $AB\n",
            "use($AB\n",
        ],
    );
}

#[test]
fn nothing_makes_it_slow_or_panic() {
    let deep = 100_000;
    let texts = [
        "(".repeat(deep) + "$AB",
        "(".repeat(deep) + "$AB" + &")".repeat(deep),
        "`${".repeat(deep),
        "f'{".repeat(deep),
        "f\"{x:{".repeat(deep),
        "$AB,".repeat(deep),
        "let ".to_owned() + &"$AB,".repeat(deep),
        "'''".repeat(deep),
        "/".repeat(deep),
        "\\".repeat(deep),
        "é$É'\u{2028}".repeat(deep / 10),
    ];
    for text in &texts {
        for language in [Language::Python, Language::JavaScript] {
            let _ = language.check(text);
        }
    }
    let pieces = [
        "'", "\"", "`", "'''", "${", "}", "{", "$A", "$", "/", "*", "\\", "\n", "f", "é", "(", ")",
        "#", "\u{feff}", "<<", "EOF", "=",
    ];
    // Try every text of three pieces.
    for first in pieces {
        for second in pieces {
            for third in pieces {
                let text = [first, second, third].concat();
                for language in [Language::Python, Language::JavaScript] {
                    if let Some(finding) = language.check(&text) {
                        assert!(text.is_char_boundary(finding.offset));
                    }
                }
            }
        }
    }
}

/// Valid programs must pass, so no program that is installed on this machine may raise an alarm.
#[test]
fn no_installed_program_raises_an_alarm() {
    let (mut checked, mut tried, mut noticed) = (0_usize, 0_usize, 0_usize);
    let mut waiting: Vec<PathBuf> = match std::env::var_os("INTERLOCK_PREFLIGHT_ROOTS") {
        Some(roots) => std::env::split_paths(&roots).collect(),
        None => [
            "/usr/lib/python3",
            "/usr/lib/node_modules",
            "/usr/share/nodejs",
        ]
        .map(PathBuf::from)
        .to_vec(),
    };
    let mut alarms = Vec::new();
    while let Some(path) = waiting.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            waiting.extend(entries.map(|entry| entry.path()));
            continue;
        }
        let language = match path.extension().and_then(|extension| extension.to_str()) {
            Some("py") => Language::Python,
            Some("js" | "mjs" | "cjs") => Language::JavaScript,
            _ => continue,
        };
        if !metadata.is_file() || metadata.len() > MAX_BYTES {
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        checked += 1;
        if let Some(found) = seen(language, &text) {
            alarms.push((path, found));
        }
        if checked % 8 != 0 {
            continue;
        }
        let with_mistake = format!("{text}\nuse($INTERLOCK_MISTAKE)\n");
        let line = text.matches('\n').count() + 2;
        let expected = Some((line, "$INTERLOCK_MISTAKE".to_owned()));
        tried += 1;
        noticed += usize::from(seen(language, &with_mistake) == expected);
    }
    println!("{checked} files; a mistake is noticed in {noticed} of {tried}");
    assert!(alarms.is_empty(), "{alarms:#?}");
    // If the checks understood nothing, the absence of alarms would prove nothing.
    assert!(noticed >= tried - tried / 10, "{noticed} of {tried}");
}

#[test]
fn a_mistake_says_what_it_looks_like_and_what_to_write() {
    let say = |language, found| {
        let mistake = Mistake {
            file: "x".to_owned(),
            line: 3,
            language,
            found,
        };
        format!("{mistake}; {}", mistake.remedy())
    };
    let name = || "HOME".to_owned();
    assert_eq!(
        say(Language::Python, FoundLanguage::Variable(name())),
        "x:3: `$HOME` looks like a shell variable; Python has none; write `os.environ[\"HOME\"]`, with `import os`"
    );
    assert_eq!(
        say(Language::JavaScript, FoundLanguage::Variable(name())),
        "x:3: `$HOME` looks like a shell variable; JavaScript has none; write `process.env.HOME`"
    );
    assert_eq!(
        say(Language::Python, FoundLanguage::Line("export".to_owned())),
        "x:3: `export …` looks like a line for a shell, not like Python; run shell commands by themselves, and leave only the program in the file"
    );
}
