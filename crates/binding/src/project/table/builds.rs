//! The rows of build tools and task runners such as cargo and make.

use super::{
    Does, NO_OPTIONS, ProjectOperands, ProjectOptionStyle, ProjectOptions, ProjectRest, ProjectRow,
    ROW, directory, exact, fetched, fetches, file, loader, native, project, settings,
};

/// Whether a setting of cargo can name a program. Only settings that are numbers or switches
/// cannot.
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

const CARGO: ProjectOptions = ProjectOptions {
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

/// The options of Rust test programs, without `--logfile`, which writes a file.
const LIBTEST: ProjectOptions = ProjectOptions {
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

/// The options that set levels of lints, without `-C`, which can name a linker.
const LINTS: ProjectOptions = ProjectOptions {
    flags: &[],
    values: &[
        "-A", "-D", "-F", "-W", "--allow", "--deny", "--forbid", "--warn",
    ],
    elsewhere: &[],
};

const fn cargo(operands: ProjectOperands, behind: Option<ProjectOptions>) -> ProjectRest {
    ProjectRest {
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

pub(super) const ROWS: &[ProjectRow] = &[
    // Building runs build scripts and procedural macros of the project and of its dependencies. A
    // word that is not listed is a program `cargo-WORD` or an alias of the project's settings.
    ProjectRow {
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
        front: ProjectOptions {
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
                cargo(ProjectOperands::Names, Some(LIBTEST)),
            ),
            project(&["clippy"], cargo(ProjectOperands::Names, Some(LINTS))),
            project(
                &["build", "b", "check", "c", "doc", "d"],
                cargo(ProjectOperands::Names, None),
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
    // Rules are shell text of the Makefile and of its includes. A target may do anything, so the
    // words are stored unchanged.
    ProjectRow {
        names: &["make", "gmake", "bmake", "remake"],
        decides: "the Makefile and what it includes",
        markers: &["GNUmakefile", "makefile", "Makefile"],
        otherwise: project(&[], exact(MAKE_ELSEWHERE)),
        ..ROW
    },
    ProjectRow {
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
    ProjectRow {
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
    ProjectRow {
        names: &["ninja", "samu"],
        decides: "build.ninja",
        markers: &["build.ninja"],
        otherwise: project(&[], exact(&[directory("-C"), file("-f")])),
        ..ROW
    },
    // Configuring runs the commands of CMakeLists.txt, and building runs the commands that it
    // generated.
    ProjectRow {
        names: &["cmake", "ctest", "cpack"],
        decides: "CMakeLists.txt, its modules and presets",
        markers: &["CMakeLists.txt"],
        manifests: &["CMakePresets.json", "CMakeUserPresets.json"],
        style: ProjectOptionStyle::Words,
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
    ProjectRow {
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
    ProjectRow {
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
        front: ProjectOptions {
            elsewhere: &[
                file("--bazelrc"),
                settings("--output_user_root"),
                settings("--install_base"),
            ],
            ..NO_OPTIONS
        },
        style: ProjectOptionStyle::Words,
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
];
