//! The rows of Ruby, PHP, Elixir, Haskell, Dart and other languages with their own tools.

use super::{
    Does, EXACT, PACKAGES, ProjectOperands, ProjectOptions, ProjectRest, ProjectRow, ROW,
    directory, exact, fetches, file, loader, module, native, project, settings, verb,
};

const RUBY_DECIDES: &str = "the Gemfile and the Ruby files of the project";
const RUBY: &[&str] = &["Gemfile", "Rakefile", "gems.rb"];

const RSPEC: ProjectRest = ProjectRest {
    is_open: true,
    options: ProjectOptions {
        flags: &[
            "--fail-fast",
            "--no-color",
            "--color",
            "--only-failures",
            "--next-failure",
            "-b",
            "--backtrace",
            "-w",
        ],
        values: &["-e", "--example", "-t", "--tag", "--seed", "--order"],
        elsewhere: &[
            module("-r"),
            module("--require"),
            module("-I"),
            file("-O"),
            file("--options"),
            module("-f").when(is_class),
            module("--format").when(is_class),
        ],
    },
    operands: ProjectOperands::Paths,
    behind: None,
};

/// Whether a formatter is named by its class, which is code, and not by one of the built-in names.
fn is_class(name: &str) -> bool {
    !matches!(
        name,
        "p" | "progress" | "d" | "doc" | "documentation" | "j" | "json" | "f" | "failures"
    )
}

pub(super) const ROWS: &[ProjectRow] = &[
    ProjectRow {
        names: &["bundle", "bundler"],
        decides: RUBY_DECIDES,
        markers: &["Gemfile", "gems.rb"],
        manifests: &[".bundle/config"],
        front: ProjectOptions {
            flags: &["--quiet", "--no-color", "-V", "--verbose"],
            values: &[],
            elsewhere: &[file("--gemfile")],
        },
        verbs: &[
            verb(&["exec", "e"], Does::Carries, EXACT),
            project(&["add"], PACKAGES),
            native(&[
                "check", "clean", "config", "doctor", "env", "help", "info", "init", "licenses",
                "list", "outdated", "platform", "show", "version", "why",
            ]),
        ],
        otherwise: project(&[], exact(&[file("--gemfile")])),
        alone: Does::Project,
        ..ROW
    },
    ProjectRow {
        names: &[
            "rake", "rails", "rackup", "puma", "thor", "cap", "jekyll", "guard", "sidekiq",
            "spring", "hanami", "brakeman",
        ],
        decides: RUBY_DECIDES,
        markers: RUBY,
        manifests: &[
            "config/application.rb",
            "config/boot.rb",
            "config.ru",
            "_config.yml",
            "Capfile",
        ],
        otherwise: project(
            &[],
            exact(&[
                file("-f"),
                file("--rakefile"),
                module("-r"),
                module("--require"),
                module("-I"),
                module("--libdir"),
                module("-R"),
                module("--rakelibdir"),
                settings("-g"),
                settings("--system"),
            ]),
        ),
        ..ROW
    },
    ProjectRow {
        names: &["rspec"],
        decides: "spec files, .rspec and the Ruby files of the project",
        markers: &[".rspec", "Gemfile"],
        otherwise: project(&[], RSPEC),
        ..ROW
    },
    ProjectRow {
        names: &[
            "rubocop",
            "standardrb",
            "minitest",
            "cucumber",
            "erblint",
            "srb",
            "steep",
        ],
        decides: "the tool's configuration and what it requires",
        markers: &[".rubocop.yml", "Gemfile"],
        otherwise: project(
            &[],
            exact(&[
                file("-c"),
                file("--config"),
                module("-r"),
                module("--require"),
                module("--plugin"),
            ]),
        ),
        ..ROW
    },
    ProjectRow {
        names: &["gem"],
        decides: "the package that it fetches",
        verbs: &[
            fetches(&["install", "update", "exec"]),
            project(&["build", "push"], EXACT),
        ],
        otherwise: native(&[]),
        alone: Does::Native,
        ..ROW
    },
    ProjectRow {
        names: &["composer"],
        decides: "composer.json, its scripts and plug-ins",
        markers: &["composer.json"],
        front: ProjectOptions {
            flags: &[
                "-q",
                "--quiet",
                "-n",
                "--no-interaction",
                "--no-plugins",
                "--no-scripts",
                "--ansi",
                "--no-ansi",
                "-v",
                "-vv",
                "-vvv",
            ],
            values: &[],
            elsewhere: &[directory("-d"), directory("--working-dir")],
        },
        verbs: &[
            project(&["require"], PACKAGES),
            verb(&["exec"], Does::Carries, EXACT),
            fetches(&["global", "create-project"]),
            native(&[
                "about",
                "audit",
                "browse",
                "check-platform-reqs",
                "clear-cache",
                "config",
                "depends",
                "diagnose",
                "fund",
                "help",
                "info",
                "licenses",
                "list",
                "outdated",
                "prohibits",
                "search",
                "show",
                "status",
                "suggests",
                "validate",
                "why",
                "why-not",
            ]),
        ],
        otherwise: project(
            &[],
            exact(&[
                directory("-d"),
                directory("--working-dir"),
                settings("--repository"),
            ]),
        ),
        alone: Does::Native,
        ..ROW
    },
    ProjectRow {
        names: &[
            "phpunit",
            "pest",
            "phpstan",
            "psalm",
            "phpcs",
            "php-cs-fixer",
            "artisan",
            "behat",
            "codecept",
            "phing",
            "rector",
            "drush",
            "wp",
        ],
        decides: "the tool's configuration, tests and autoloaded files",
        markers: &[
            "phpunit.xml",
            "phpunit.xml.dist",
            "composer.json",
            "phpstan.neon",
            "artisan",
        ],
        otherwise: project(
            &[],
            exact(&[
                file("-c"),
                file("--configuration"),
                module("--bootstrap"),
                module("--prepend"),
                module("--autoload-file"),
                module("-a"),
                module("--extension"),
                module("--include-path"),
                settings("-d"),
                module("--require"),
                directory("--path").when(|path| path.starts_with('/')),
            ]),
        ),
        ..ROW
    },
    ProjectRow {
        names: &["mix", "rebar3"],
        decides: "mix.exs or rebar.config, and the code of the project",
        markers: &["mix.exs", "rebar.config"],
        verbs: &[
            native(&["help", "version", "local", "hex.info", "new"]),
            fetches(&["archive.install", "escript.install"]),
        ],
        otherwise: project(&[], EXACT),
        ..ROW
    },
    ProjectRow {
        names: &[
            "cabal", "stack", "dune", "opam", "nimble", "shards", "crystal", "rebar", "spago",
            "gleam", "elm", "elm-test", "alr", "fpm", "dub",
        ],
        decides: "the project's build file and what it depends on",
        markers: &[
            "cabal.project",
            "package.yaml",
            "stack.yaml",
            "dune-project",
            "shard.yml",
            "gleam.toml",
            "elm.json",
            "alire.toml",
            "fpm.toml",
            "dub.json",
        ],
        otherwise: project(
            &[],
            exact(&[
                file("--project-file"),
                file("--stack-yaml"),
                directory("--root"),
                directory("--project-dir"),
            ]),
        ),
        ..ROW
    },
    ProjectRow {
        names: &["flutter", "dart", "melos"],
        decides: "pubspec.yaml, tests and build hooks",
        markers: &["pubspec.yaml"],
        verbs: &[
            native(&[
                "help",
                "doctor",
                "devices",
                "emulators",
                "channel",
                "config",
                "create",
                "format",
                "info",
                "--version",
            ]),
            project(
                &[
                    "run",
                    "test",
                    "build",
                    "compile",
                    "analyze",
                    "fix",
                    "pub",
                    "drive",
                    "clean",
                    "gen-l10n",
                    "assemble",
                    "bootstrap",
                    "exec",
                ],
                exact(&[directory("-C"), directory("--directory")]),
            ),
        ],
        // `dart FILE` runs the file.
        otherwise: project(&[], EXACT),
        alone: Does::Native,
        ..ROW
    },
    ProjectRow {
        names: &[
            "prove",
            "cpanm",
            "cpan",
            "dzil",
            "minil",
            "carton",
            "busted",
            "luarocks",
            "bats",
            "shellspec",
            "roswell",
        ],
        decides: "tests and set-up code of the project, or of what is fetched",
        markers: &["Makefile.PL", "Build.PL", "cpanfile", "dist.ini", ".busted"],
        otherwise: project(
            &[],
            exact(&[
                module("-I"),
                loader("-e"),
                loader("--exec"),
                module("--helper"),
                module("-P"),
                file("--rc"),
            ]),
        ),
        ..ROW
    },
];
