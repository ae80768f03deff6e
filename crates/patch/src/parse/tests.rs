use super::*;

fn parse(body: &str) -> Result<Patch, ParseError> {
    Patch::parse(&format!("*** Begin Patch\n{body}\n*** End Patch\n"))
}

fn hunk(headers: &[&str], lines: &[&str], end_of_file: bool) -> Hunk {
    let line = |text: &&str| match text.split_at(1) {
        (" ", rest) => HunkLine::Context(rest.to_owned()),
        ("-", rest) => HunkLine::Remove(rest.to_owned()),
        (_, rest) => HunkLine::Add(rest.to_owned()),
    };
    Hunk {
        headers: headers.iter().map(|header| (*header).to_owned()).collect(),
        lines: lines.iter().map(line).collect(),
        end_of_file,
        position: HunkPosition::default(),
    }
}

fn update(path: &str, move_to: Option<&str>, hunks: Vec<Hunk>) -> Operation {
    Operation::Update {
        path: path.to_owned(),
        move_to: move_to.map(str::to_owned),
        hunks,
    }
}

fn add(path: &str, lines: &[&str]) -> Operation {
    Operation::Add {
        path: path.to_owned(),
        lines: lines.iter().map(|line| (*line).to_owned()).collect(),
    }
}

fn delete(path: &str) -> Operation {
    Operation::Delete {
        path: path.to_owned(),
    }
}

#[test]
fn every_form_of_the_format_is_read() {
    let cases: Vec<(&str, Vec<Operation>)> = vec![
        ("*** Add File: a", vec![add("a", &[])]),
        (
            "*** Add File: a b \n+x\n+\n++y\n",
            vec![add("a b", &["x", "", "+y"])],
        ),
        (
            "*** Delete File: a\n\n*** Delete File: b",
            vec![delete("a"), delete("b")],
        ),
        ("  *** Delete File: a  ", vec![delete("a")]),
        (
            "*** Update File: a\n@@\n-x\n+y",
            vec![update("a", None, vec![hunk(&[], &["-x", "+y"], false)])],
        ),
        (
            "*** Update File: a\n-x\n+y",
            vec![update("a", None, vec![hunk(&[], &["-x", "+y"], false)])],
        ),
        (
            "*** Update File: a\n\n*** Move to: b",
            vec![update("a", Some("b"), vec![])],
        ),
        (
            "*** Update File: a\n*** Move to: b\n@@ class A:  \n@@   def f():\n x\n\n-y\n*** End of File\n",
            vec![update(
                "a",
                Some("b"),
                vec![hunk(&["class A:", "  def f():"], &[" x", " ", "-y"], true)],
            )],
        ),
        (
            "*** Update File: a\n@@\n-x\n@@ b\n+y\n\n*** Delete File: c",
            vec![
                update(
                    "a",
                    None,
                    vec![hunk(&[], &["-x"], false), hunk(&["b"], &["+y"], false)],
                ),
                delete("c"),
            ],
        ),
        (
            "*** Update File: a\n@@\n *** Add File: b\n- *** x",
            vec![update(
                "a",
                None,
                vec![hunk(&[], &[" *** Add File: b", "- *** x"], false)],
            )],
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(parse(body).unwrap().operations(), expected, "{body}");
    }
}

#[test]
fn what_stands_around_a_patch_is_tolerated() {
    let plain = "*** Begin Patch\n*** Delete File: a\n*** End Patch";
    let expected = Patch::parse(plain).unwrap();
    let cases = [
        format!("\n\n  \n{plain}\n\n \n"),
        format!("<<EOF\n{plain}\nEOF"),
        format!("<<'EOF'\n{plain}\nEOF\n"),
        format!("<<\"PATCH\"\n\n{plain}\n\nPATCH\n\n"),
        format!("apply_patch <<'EOF'\n{plain}\nEOF\n"),
        plain.replace('\n', "\r\n"),
        format!("\u{feff}{plain}"),
        " *** Begin Patch\t\n*** Delete File: a\n *** End Patch ".to_owned(),
    ];
    for text in cases {
        assert_eq!(Patch::parse(&text).as_ref(), Ok(&expected), "{text:?}");
    }
}

#[test]
fn errors_name_the_file_the_hunk_and_the_line() {
    // text, line, path, hunk, part of the message
    type Case<'a> = (&'a str, usize, Option<&'a str>, Option<usize>, &'a str);
    let cases: [Case<'_>; 18] = [
        ("", 0, None, None, "empty"),
        ("hello", 1, None, None, "first line"),
        (
            "*** Begin Patch\n*** Delete File: a",
            2,
            None,
            None,
            "last line",
        ),
        (
            "<<EOF\n*** Begin Patch\n*** Delete File: a\n*** End Patch",
            4,
            None,
            None,
            "heredoc",
        ),
        ("<<EOF", 1, None, None, "heredoc"),
        ("*** Begin Patch\n*** End Patch", 1, None, None, "no file"),
        (
            "*** Begin Patch\n*** Frobnicate File: a\n*** End Patch",
            2,
            None,
            None,
            "Frobnicate",
        ),
        (
            "*** Begin Patch\n*** Move to: a\n*** End Patch",
            2,
            None,
            None,
            "cannot stand here",
        ),
        (
            "*** Begin Patch\n*** Add File:\n*** End Patch",
            2,
            None,
            None,
            "path",
        ),
        (
            "*** Begin Patch\n*** Add File: a/\n*** End Patch",
            2,
            None,
            None,
            "path",
        ),
        (
            "*** Begin Patch\n*** Add File: a\0\n*** End Patch",
            2,
            None,
            None,
            "path",
        ),
        (
            "*** Begin Patch\n*** Add File: a\n+x\n\n+y\n*** End Patch",
            5,
            Some("a"),
            None,
            "`+`",
        ),
        (
            "*** Begin Patch\n*** Update File: a\n*** End Patch",
            2,
            Some("a"),
            None,
            "neither",
        ),
        (
            "*** Begin Patch\n*** Update File: a\n@@ x\n*** End Patch",
            3,
            Some("a"),
            Some(1),
            "no lines",
        ),
        (
            "*** Begin Patch\n*** Update File: a\n@@\n-x\ny\n*** End Patch",
            5,
            Some("a"),
            Some(1),
            "`y`",
        ),
        (
            "*** Begin Patch\n*** Update File: a\n@@\n-x\n@@\n-y\n@@z\n*** End Patch",
            7,
            Some("a"),
            Some(2),
            "`@@z`",
        ),
        (
            "*** Begin Patch\n*** Update File: a\n@@\n-x\n*** End of File\n-y\n*** End Patch",
            6,
            Some("a"),
            Some(2),
            "End of File",
        ),
        (
            "*** Begin Patch\n*** Update File: a\n@@\n-x\n*** Move to: b\n*** End Patch",
            5,
            None,
            None,
            "cannot stand",
        ),
    ];
    for (text, line, path, hunk, message) in cases {
        let error = Patch::parse(text).unwrap_err();
        assert_eq!(
            (error.line().unwrap_or(0), error.path(), error.hunk()),
            (line, path, hunk),
            "{text:?}: {error}"
        );
        assert!(error.to_string().contains(message), "{text:?}: {error}");
        assert_eq!(error.code(), "PATCH_PARSE");
    }
}

#[test]
fn a_patch_of_more_than_the_limit_is_refused() {
    let error = Patch::parse(&" ".repeat(MAX_PATCH_BYTES + 1)).unwrap_err();
    assert_eq!(error.code(), "PATCH_TOO_LARGE");
    let json = serde_json::to_value(&error).unwrap();
    assert_eq!(json["code"], "PATCH_TOO_LARGE");
    assert_eq!(json["patchLine"], serde_json::Value::Null);
}

#[test]
fn an_error_is_written_as_json_for_programs() {
    let error =
        Patch::parse("*** Begin Patch\n*** Update File: a\n@@\nx\n*** End Patch").unwrap_err();
    let expected = serde_json::json!({
        "code": "PATCH_PARSE",
        "message": "a line of a hunk starts with ` `, `-` or `+`, found `x` (patch line 4, file `a`, hunk 1)",
        "path": "a",
        "hunk": 1,
        "patchLine": 4,
    });
    assert_eq!(serde_json::to_value(&error).unwrap(), expected);
}

#[test]
fn target_paths_are_absolute_and_named_once() {
    let patch = parse("*** Add File: s/../x\n+x\n*** Update File: ./d//old\n*** Move to: d/t/../new\n*** Delete File: x")
        .unwrap();
    let paths = patch.target_paths(std::path::Path::new("/w"));
    assert_eq!(
        paths,
        ["/w/x", "/w/d/old", "/w/d/new"].map(std::path::PathBuf::from)
    );
}
