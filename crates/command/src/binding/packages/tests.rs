use super::*;

fn read(text: &str) -> Option<Runs> {
    let argv: Vec<String> = text.split(' ').map(str::to_owned).collect();
    super::read(&argv)
}

#[test]
fn the_program_behind_is_found() {
    for (text, expected) in [
        ("npx tsx ./run.ts", 1),
        ("npx --no-install tsx ./run.ts", 2),
        ("npm exec -- tsx ./run.ts", 3),
        ("npm --silent exec tsx ./run.ts", 3),
        ("pnpm --reporter silent exec tsx ./run.ts", 4),
        ("pnpm --reporter=silent exec tsx ./run.ts", 3),
        ("pnpm node ./run.js", 1),
        ("yarn node ./run.js", 1),
        ("uv run --no-sync python x.py", 3),
    ] {
        let Some(Runs::Behind { index, .. }) = read(text) else {
            panic!("{text}: {:?}", read(text));
        };
        assert_eq!(index, expected, "{text}");
    }
}

#[test]
fn scripts_fetched_packages_and_unknown_options_are_elsewhere() {
    for text in [
        "npm run build",
        "npm test",
        "npm install",
        "npm --prefix /x exec tsx",
        "npm init foo",
        "npx --package=tsx tsx ./run.ts",
        "npx --package tsx tsx ./run.ts",
        "npx cowsay@1",
        "npx ./folder",
        "npx -c tsx",
        "npx",
        "pnpm dlx tsx ./run.ts",
        "pnpm build",
        "pnpm --dir x exec tsx",
        "pnpm",
        "yarn",
        "yarn build",
        "uv run --with x y",
        "uv run -",
        "uv run -m x",
        "uv run https://x.test/a.py",
        "uvx ruff",
        "cargo test",
        "go run x.go",
        "just all",
    ] {
        assert!(
            matches!(read(text), Some(Runs::Elsewhere { .. })),
            "{text}: {:?}",
            read(text)
        );
    }
}

#[test]
fn questions_and_lists_start_nothing() {
    for text in [
        "npm --version",
        "npm ls",
        "npm view x",
        "pnpm outdated",
        "yarn why x",
        "cargo tree",
    ] {
        assert_eq!(read(text), Some(Runs::Nothing), "{text}");
    }
    assert_eq!(read("ls -l"), None);
}
