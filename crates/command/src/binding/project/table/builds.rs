//! Build tools and task runners: cargo, make and their peers.

use super::{
    Does, EXACT, NO_OPTIONS, Operands, Options, PACKAGES, ROW, Rest, Row, Style, directory, exact,
    fetched, fetches, file, loader, module, native, project, settings,
};

/// Settings of cargo that hold numbers and switches only; all others can name programs.
fn names_a_program(setting: &str) -> bool {
    let harmless = [
        "term.",
        "net.offline",
        "net.retry",
        "build.jobs",
        "profile.",
    ];
    let key = setting.split('=').next().unwrap_or_default().trim();
    !setting.contains('=')
        || setting.contains('\n')
        || !harmless.iter().any(|known| key.starts_with(known))
}

const CARGO_ELSEWHERE: &[super::Elsewhere] = &[
    directory("-C"),
    file("--manifest-path"),
    loader("--config").when(names_a_program),
    settings("-Z"),
    settings("--lockfile-path"),
    fetched("--git"),
    fetched("--index"),
    fetched("--registry"),
];

const CARGO: Options = Options {
    flags: &[
        "--all",
        "--all-features",
        "--all-targets",
        "--benches",
        "--bins",
        "--doc",
        "--document-private-items",
        "--examples",
        "--fix",
        "--frozen",
        "--ignore-rust-version",
        "--keep-going",
        "--lib",
        "--locked",
        "--no-default-features",
        "--no-deps",
        "--no-fail-fast",
        "--no-run",
        "--offline",
        "--quiet",
        "--release",
        "--tests",
        "--verbose",
        "--workspace",
        "-q",
        "-r",
        "-v",
        "-vv",
    ],
    values: &[
        "--bench",
        "--bin",
        "--color",
        "--config",
        "--example",
        "--exclude",
        "--features",
        "--jobs",
        "--message-format",
        "--package",
        "--profile",
        "--test",
        "-F",
        "-j",
        "-p",
    ],
    elsewhere: CARGO_ELSEWHERE,
};

/// What the test programs of a Rust project take. Not `--logfile`, which writes a file.
const LIBTEST: Options = Options {
    flags: &[
        "--exact",
        "--ignored",
        "--include-ignored",
        "--list",
        "--no-capture",
        "--nocapture",
        "--quiet",
        "--show-output",
        "-q",
    ],
    values: &["--color", "--format", "--skip", "--test-threads"],
    elsewhere: &[],
};

/// Levels of lints. Not `-C`, which can name a linker.
const LINTS: Options = Options {
    flags: &[],
    values: &[
        "-A", "-D", "-F", "-W", "--allow", "--deny", "--forbid", "--warn",
    ],
    elsewhere: &[],
};

const fn cargo(operands: Operands, behind: Option<Options>) -> Rest {
    Rest {
        is_open: true,
        options: CARGO,
        operands,
        behind,
    }
}

const MAKE_ELSEWHERE: &[super::Elsewhere] = &[
    directory("-C"),
    directory("--directory"),
    file("-f"),
    file("--file"),
    file("--makefile"),
    settings("-I"),
    settings("--include-dir"),
];

const GO_PATHS: Rest = Rest {
    is_open: true,
    options: Options {
        flags: &[
            "-a",
            "-benchmem",
            "-cover",
            "-failfast",
            "-i",
            "-json",
            "-n",
            "-race",
            "-short",
            "-trimpath",
            "-v",
            "-x",
        ],
        values: &[
            "-bench",
            "-benchtime",
            "-count",
            "-covermode",
            "-cpu",
            "-p",
            "-parallel",
            "-run",
            "-shuffle",
            "-skip",
            "-tags",
            "-timeout",
        ],
        elsewhere: GO_ELSEWHERE,
    },
    operands: Operands::Paths,
    behind: None,
};

const GO_ELSEWHERE: &[super::Elsewhere] = &[
    directory("-C"),
    loader("-exec"),
    loader("-toolexec"),
    loader("-vettool"),
    loader("-overlay"),
    settings("-modfile"),
    settings("-ldflags"),
    settings("-gcflags"),
    settings("-gccgoflags"),
    settings("-compiler"),
    settings("-pkgdir"),
    settings("-mod"),
];

const GRADLE_ELSEWHERE: &[super::Elsewhere] = &[
    directory("-p"),
    directory("--project-dir"),
    directory("--include-build"),
    file("-b"),
    file("--build-file"),
    file("-c"),
    file("--settings-file"),
    module("-I"),
    module("--init-script"),
    settings("-g"),
    settings("--gradle-user-home"),
    settings("--project-cache-dir"),
];

pub(super) const ROWS: &[Row] = &[
    // Building runs build scripts and procedural macros, of the project and of what it depends on. A
    // word that is not listed is a program `cargo-WORD`, or an alias that the project's settings name.
    Row {
        names: &["cargo"],
        decides: "Cargo.toml, build.rs, tests",
        markers: &["Cargo.toml"],
        manifests: &[
            "build.rs",
            ".cargo/config.toml",
            ".cargo/config",
            "rust-toolchain.toml",
            "rust-toolchain",
        ],
        front: Options {
            values: &["--color", "--config"],
            flags: &[
                "-q",
                "--quiet",
                "--offline",
                "--locked",
                "--frozen",
                "-v",
                "-vv",
                "--verbose",
            ],
            elsewhere: CARGO_ELSEWHERE,
        },
        verbs: &[
            project(
                &["test", "t", "bench"],
                cargo(Operands::Names, Some(LIBTEST)),
            ),
            project(&["clippy"], cargo(Operands::Names, Some(LINTS))),
            project(
                &["build", "b", "check", "c", "doc", "d"],
                cargo(Operands::Names, None),
            ),
            project(
                &[
                    "run", "r", "rustc", "rustdoc", "fix", "package", "publish", "nextest",
                    "llvm-cov", "insta",
                ],
                exact(CARGO_ELSEWHERE),
            ),
            fetches(&["install"]),
            native(&[
                "add",
                "clean",
                "config",
                "fetch",
                "fmt",
                "generate-lockfile",
                "help",
                "info",
                "init",
                "locate-project",
                "login",
                "logout",
                "metadata",
                "new",
                "owner",
                "pkgid",
                "read-manifest",
                "remove",
                "report",
                "rm",
                "search",
                "tree",
                "uninstall",
                "update",
                "vendor",
                "verify-project",
                "version",
                "yank",
            ]),
        ],
        otherwise: project(&[], exact(CARGO_ELSEWHERE)),
        alone: Does::Native,
        ..ROW
    },
    // Rules are shell text of the Makefile and of what it includes. A target may be anything, so the
    // words are stored as they are.
    Row {
        names: &["make", "gmake", "bmake", "remake"],
        decides: "the Makefile and what it includes",
        markers: &["GNUmakefile", "makefile", "Makefile"],
        otherwise: project(&[], exact(MAKE_ELSEWHERE)),
        ..ROW
    },
    Row {
        names: &["just"],
        decides: "the justfile",
        markers: &["justfile", "Justfile", ".justfile"],
        otherwise: project(
            &[],
            exact(&[
                file("-f"),
                file("--justfile"),
                directory("-d"),
                directory("--working-directory"),
                loader("--shell"),
                loader("--shell-command"),
                settings("--shell-arg"),
                settings("--dotenv-path"),
            ]),
        ),
        ..ROW
    },
    Row {
        names: &["task", "go-task"],
        decides: "the Taskfile",
        markers: &[
            "Taskfile.yml",
            "Taskfile.yaml",
            "taskfile.yml",
            "taskfile.yaml",
        ],
        otherwise: project(
            &[],
            exact(&[
                file("-t"),
                file("--taskfile"),
                directory("-d"),
                directory("--dir"),
                settings("-g"),
                settings("--global"),
            ]),
        ),
        ..ROW
    },
    Row {
        names: &["ninja", "samu"],
        decides: "build.ninja",
        markers: &["build.ninja"],
        otherwise: project(&[], exact(&[directory("-C"), file("-f")])),
        ..ROW
    },
    // Configuring runs the commands of CMakeLists.txt; building, those of what it generated.
    Row {
        names: &["cmake", "ctest", "cpack"],
        decides: "CMakeLists.txt, its modules and presets",
        markers: &["CMakeLists.txt"],
        manifests: &["CMakePresets.json", "CMakeUserPresets.json"],
        style: Style::Words,
        otherwise: project(
            &[],
            exact(&[
                file("-P"),
                file("-C"),
                file("--toolchain"),
                settings("-E"),
                file("-S"),
                file("--script"),
            ]),
        ),
        ..ROW
    },
    Row {
        names: &[
            "meson", "scons", "waf", "tup", "xmake", "premake5", "b2", "bjam",
        ],
        decides: "the build files (meson.build, SConstruct, wscript, …)",
        markers: &[
            "meson.build",
            "SConstruct",
            "wscript",
            "Tupfile",
            "xmake.lua",
            "premake5.lua",
        ],
        otherwise: project(&[], exact(&[directory("-C"), file("-f"), file("--file")])),
        ..ROW
    },
    Row {
        names: &[
            "bazel", "bazelisk", "buck2", "pants", "please", "plz", "earthly",
        ],
        decides: "WORKSPACE or MODULE.bazel, BUILD files and their rules",
        markers: &[
            "MODULE.bazel",
            "WORKSPACE",
            "WORKSPACE.bazel",
            ".buckconfig",
            "pants.toml",
            "Earthfile",
        ],
        manifests: &[".bazelrc"],
        front: Options {
            elsewhere: &[
                file("--bazelrc"),
                settings("--output_user_root"),
                settings("--install_base"),
            ],
            ..NO_OPTIONS
        },
        style: Style::Words,
        verbs: &[native(&[
            "help", "version", "info", "shutdown", "clean", "dump", "license",
        ])],
        otherwise: project(
            &[],
            exact(&[loader("--run_under"), settings("--override_repository")]),
        ),
        alone: Does::Native,
        ..ROW
    },
    // Tests are programs; a build can run the compiler that cgo names. `generate` runs what comments say.
    Row {
        names: &["go"],
        decides: "go.mod, tests, go:generate comments",
        markers: &["go.mod", "go.work"],
        style: Style::Words,
        front: Options {
            elsewhere: GO_ELSEWHERE,
            ..NO_OPTIONS
        },
        verbs: &[
            project(&["test", "vet", "build", "generate"], GO_PATHS),
            project(&["run", "tool", "work"], exact(GO_ELSEWHERE)),
            fetches(&["install", "get"]),
            native(&[
                "bug",
                "clean",
                "doc",
                "env",
                "fix",
                "fmt",
                "help",
                "list",
                "mod",
                "telemetry",
                "version",
            ]),
        ],
        otherwise: project(&[], exact(GO_ELSEWHERE)),
        alone: Does::Native,
        ..ROW
    },
    Row {
        names: &[
            "golangci-lint",
            "staticcheck",
            "mage",
            "goreleaser",
            "buf",
            "air",
            "ginkgo",
            "wire",
        ],
        decides: "go.mod, the tool's configuration and its plug-ins",
        markers: &[
            "go.mod",
            ".golangci.yml",
            ".golangci.yaml",
            ".goreleaser.yaml",
            "buf.yaml",
        ],
        otherwise: project(&[], exact(&[file("-c"), file("--config"), directory("-C")])),
        ..ROW
    },
    Row {
        names: &["gradle", "gradlew"],
        decides: "build.gradle, settings.gradle, the wrapper and plug-ins",
        markers: &[
            "settings.gradle",
            "settings.gradle.kts",
            "build.gradle",
            "build.gradle.kts",
        ],
        manifests: &[
            "gradle.properties",
            "gradle/wrapper/gradle-wrapper.properties",
            "gradlew",
        ],
        style: Style::Words,
        otherwise: project(&[], exact(GRADLE_ELSEWHERE)),
        ..ROW
    },
    Row {
        names: &["mvn", "mvnw", "mvnd"],
        decides: "pom.xml and its plug-ins",
        markers: &["pom.xml"],
        manifests: &[
            ".mvn/maven.config",
            ".mvn/extensions.xml",
            ".mvn/jvm.config",
            "mvnw",
        ],
        style: Style::Words,
        otherwise: project(
            &[],
            Rest {
                options: Options {
                    // They begin like `-f` and mean something else.
                    flags: &["-fae", "-ff", "-fn"],
                    values: &[],
                    elsewhere: &[
                        file("-f"),
                        file("--file"),
                        settings("-s"),
                        settings("--settings"),
                        settings("-gs"),
                        settings("--global-settings"),
                        settings("-t"),
                        settings("--toolchains"),
                    ],
                },
                ..EXACT
            },
        ),
        ..ROW
    },
    Row {
        names: &[
            "ant",
            "sbt",
            "sbtn",
            "mill",
            "lein",
            "boot",
            "clj-kondo",
            "kotlinc-jvm",
        ],
        decides: "the build file (build.xml, build.sbt, build.sc, project.clj) and its plug-ins",
        markers: &["build.xml", "build.sbt", "build.sc", "project.clj"],
        manifests: &["project/plugins.sbt", "project/build.properties"],
        style: Style::Words,
        otherwise: project(
            &[],
            exact(&[
                file("-f"),
                file("-file"),
                file("-buildfile"),
                loader("-lib"),
                module("-logger"),
                module("-listener"),
            ]),
        ),
        ..ROW
    },
    // Solutions and projects are files of any name; building runs their targets and analyzers.
    Row {
        names: &["dotnet", "msbuild"],
        decides: "the solution and project files, Directory.Build.props, tests",
        markers: &["global.json", "Directory.Build.props"],
        manifests: &[
            "Directory.Build.targets",
            "Directory.Packages.props",
            "nuget.config",
            "NuGet.Config",
        ],
        verbs: &[
            native(&[
                "new",
                "sln",
                "nuget",
                "list",
                "help",
                "sdk",
                "workload",
                "dev-certs",
            ]),
            project(&["add"], PACKAGES),
        ],
        style: Style::Words,
        otherwise: project(
            &[],
            exact(&[
                file("--project"),
                settings("--property"),
                module("--test-adapter-path"),
                module("--additional-deps"),
                module("--additionalprobingpath"),
                settings("--runtimeconfig"),
            ]),
        ),
        alone: Does::Native,
        ..ROW
    },
    Row {
        names: &["swift", "xcodebuild"],
        decides: "Package.swift or the Xcode project, tests",
        markers: &["Package.swift"],
        verbs: &[project(
            &["build", "test", "run", "package"],
            exact(&[
                directory("--package-path"),
                directory("-C"),
                directory("--chdir"),
                loader("-load-plugin-library"),
            ]),
        )],
        style: Style::Words,
        otherwise: super::verb(&[], Does::Unlisted, EXACT),
        alone: Does::Unlisted,
        ..ROW
    },
    Row {
        names: &["zig"],
        decides: "build.zig and the sources that it names",
        markers: &["build.zig"],
        manifests: &["build.zig.zon"],
        verbs: &[native(&[
            "ar",
            "ast-check",
            "c++",
            "cc",
            "dlltool",
            "env",
            "fetch",
            "fmt",
            "help",
            "init",
            "lib",
            "libc",
            "ranlib",
            "rc",
            "reduce",
            "std",
            "targets",
            "translate-c",
            "version",
            "zen",
        ])],
        style: Style::Words,
        otherwise: project(
            &[],
            exact(&[
                file("--build-file"),
                settings("--zig-lib-dir"),
                settings("--build-runner"),
            ]),
        ),
        alone: Does::Native,
        ..ROW
    },
];
