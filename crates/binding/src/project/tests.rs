use super::*;

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn runs(text: &str) -> Option<Runs> {
    read(&words(text))
}

fn call(text: &str) -> ProjectCall {
    match runs(text) {
        Some(Runs::Project(call)) => call,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn the_subcommand_decides_what_a_program_is() {
    for text in [
        "cargo --version",
        "cargo tree",
        "cargo fmt --check",
        "npm --version",
        "npm ls",
        "npm view x",
        "npm init -y",
        "pnpm outdated",
        "yarn why x",
        "go mod tidy",
        "go env",
        "pip list",
        "docker compose ps",
        "docker-compose logs",
        "terraform fmt",
        "helm list",
        "poetry show",
        "bundle list",
        "dotnet --info",
        "make --version",
    ] {
        assert_eq!(runs(text), Some(Runs::Nothing), "{text}");
    }
    for text in [
        "cargo test",
        "cargo +nightly test",
        "cargo -q build --release",
        "cargo nextest run",
        "cargo some-alias",
        "npm ci",
        "npm test",
        "npm run build",
        "npm -w web run build",
        "pnpm build",
        "yarn",
        "bun test",
        "bun run build",
        "deno task build",
        "make",
        "make -j4 all",
        "just all",
        "task all",
        "ninja",
        "cmake --build build",
        "meson setup build",
        "bazel test //...",
        "pytest",
        "tox",
        "python -m pytest",
        "python3 -u -m http.server",
        "pip install -r requirements.txt",
        "poetry install",
        "poetry run pytest",
        "uv sync",
        "uv pip install -r x.txt",
        "go test ./...",
        "go run .",
        "gradle test",
        "./gradlew build",
        "mvn -q -DskipTests package",
        "mvnw test",
        "sbt test",
        "ant",
        "dotnet test",
        "docker compose up -d",
        "docker build .",
        "docker buildx build .",
        "docker-compose up",
        "terraform plan",
        "tofu apply",
        "pulumi up",
        "helm upgrade x .",
        "ansible-playbook site.yml",
        "rake",
        "bundle exec rspec",
        "rails db:migrate",
        "rspec",
        "composer install",
        "phpunit",
        "mix test",
        "swift test",
        "zig build",
        "tsc --noEmit",
        "eslint src",
        "jest",
        "vite build",
        "pre-commit run",
    ] {
        assert!(
            matches!(runs(text), Some(Runs::Project(_))),
            "{text}: {:?}",
            runs(text)
        );
    }
    for text in [
        "ls -l",
        "docker ps",
        "docker run x",
        "swift x.swift",
        "bun ./x.ts",
        "python3 x.py",
        "deno run x.ts",
    ] {
        assert_eq!(runs(text), None, "{text}");
    }
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
        ("bun x tsc", 2),
    ] {
        let Some(Runs::Behind { index, .. }) = runs(text) else {
            panic!("{text}: {:?}", runs(text));
        };
        assert_eq!(index, expected, "{text}");
    }
}

#[test]
fn what_is_fetched_is_said_and_never_stored() {
    for text in [
        "npm init foo",
        "npx --package=tsx tsx ./run.ts",
        "npx cowsay@1",
        "npx ./folder",
        "pnpm dlx tsx ./run.ts",
        "uv run --with x y",
        "uv run https://x.test/a.py",
        "uvx ruff",
        "pipx run black",
        "cargo install ripgrep",
        "go install example.com/x@latest",
        "gem install x",
    ] {
        let call = call(text);
        assert_eq!(call.origin, CodeOrigin::Fetched, "{text}");
        assert!(matches!(call.stores, Stores::Nothing(_)), "{text}");
    }
}

#[test]
fn options_that_load_code_or_name_programs_are_not_the_projects() {
    for text in [
        "cargo test --config build.rustc-wrapper=/tmp/x",
        "cargo --config /tmp/x.toml test",
        "go test -exec /tmp/x ./...",
        "go vet -vettool=/tmp/x",
        "pytest -p /tmp/evil",
        "pytest -p../evil",
        "npm --script-shell /tmp/x run build",
        "npm run build --node-options=--require=/tmp/x",
        "mocha -r /tmp/evil.js",
        "rspec -r/tmp/evil.rb",
        "eslint --rulesdir /tmp/evil .",
        "npx --node-options=x tsc",
        "npx",
        "uv run -",
        "python -m pytest -p /tmp/evil",
        "helm template --post-renderer /tmp/x .",
    ] {
        assert!(
            matches!(runs(text), Some(Runs::Loads { .. })),
            "{text}: {:?}",
            runs(text)
        );
    }
}

/// Calls that an agent could try with an entry for the leading words.
#[test]
fn nothing_that_leads_elsewhere_is_stored() {
    for text in [
        "cargo test --manifest-path /tmp/evil/Cargo.toml",
        "cargo test --manifest-path=/tmp/evil/Cargo.toml",
        "cargo -C /tmp/evil test",
        "cargo test -Z unstable-options",
        "cargo test -Zunstable-options",
        "cargo test --target /tmp/evil.json",
        "cargo test --target-dir /etc",
        "cargo test -- --logfile /etc/x",
        "cargo clippy -- -C linker=/tmp/x",
        "cargo test /tmp/x",
        "cargo build -- x",
        "make -C /tmp/evil",
        "make -C/tmp/evil",
        "make -kC /tmp/evil",
        "make -f /tmp/x",
        "make -f/tmp/x",
        "make --file=/tmp/x",
        "make -I /tmp",
        "npm --prefix /tmp/evil test",
        "npm test --prefix=/tmp/evil",
        "npm install evil",
        "npm --registry http://evil install",
        "npm ci --userconfig /tmp/x",
        "pytest -c /tmp/x.ini",
        "pytest -c/tmp/x.ini",
        "pytest --rootdir=/tmp/evil",
        "pytest -o python_files=/tmp/x",
        "pytest --unknown-option",
        "pytest -qc /tmp/x.ini",
        "pip install evil",
        "pip install -i http://evil -r requirements.txt",
        "go test -C /tmp/evil ./...",
        "go -C /tmp/evil test",
        "go test -modfile=/tmp/x",
        "gradle -p /tmp/evil test",
        "gradle -I init.gradle test",
        "mvn -f /tmp/evil test",
        "mvn -f/tmp/evil test",
        "docker compose -f /tmp/x.yml up",
        "docker compose --project-directory /tmp up",
        "docker build -f /tmp/x .",
        "terraform -chdir=/tmp/evil plan",
        "terraform --chdir=/tmp/evil plan",
        "just --justfile /tmp/x",
        "tsc -p /tmp/evil",
        "jest --config=/tmp/evil.js",
        "jest --rootDir /tmp/evil",
    ] {
        let call = call(text);
        assert!(
            matches!(call.stores, Stores::Nothing(_)),
            "{text}: {:?}",
            call.stores
        );
    }
}

#[test]
fn harmless_words_may_vary_and_others_are_stored_as_they_are() {
    for (text, deciding) in [
        ("cargo test", 2),
        ("cargo test --lib foo -- --nocapture", 2),
        ("cargo test -p my-crate --features a,b -j 4 module::case", 2),
        ("cargo clippy --all-targets -- -D warnings", 2),
        ("cargo -q check --workspace", 3),
        ("cargo test --config net.offline=true", 2),
        ("npm ci --no-audit", 2),
        ("npm install", 2),
        ("go test -race -count=1 ./...", 2),
        ("pytest -x -q -k name tests/a.py::case", 1),
        ("pytest -p no:cacheprovider -n auto", 1),
        ("python3 -m pytest -x -q", 3),
        ("tsc --noEmit", 1),
    ] {
        let call = call(text);
        assert!(
            matches!(call.stores, Stores::Leading { .. }),
            "{text}: {:?}",
            call.stores
        );
        assert_eq!(call.deciding, deciding, "{text}");
    }
    for text in [
        "cargo run -- --help",
        "npm run build",
        "npm test -- --watch=false",
        "make -j4 all",
        "just deploy prod",
        "docker compose up -d",
        "terraform plan -out x",
        "pip install -r requirements.txt",
        "python3 -m mymodule x",
        "mvn -q -DskipTests package",
        "gradle test -Pci",
    ] {
        let call = call(text);
        assert_eq!(call.stores, Stores::Words, "{text}");
    }
}

#[test]
fn no_program_stands_in_two_rows_and_every_row_says_what_decides() {
    let rows = || table::TABLES.iter().flat_map(|table| table.iter());
    let mut names: Vec<&str> = rows().flat_map(|row| row.names.iter().copied()).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    for row in rows() {
        assert!(!row.decides.is_empty(), "{:?}", row.names);
        assert!(row.names.iter().all(|name| name.to_lowercase() == **name));
    }
    // A program that starts others is refused before its row would be read.
    for name in names {
        assert_eq!(interlock_programs::opaque_reason(name), None, "{name}");
    }
}
