//! The rows of compiled languages: Go, the JVM, .NET, Swift, Zig.

use super::{
    Does, EXACT, NO_OPTIONS, PACKAGES, ProjectOperands, ProjectOptionStyle, ProjectOptions,
    ProjectRest, ProjectRow, ROW, directory, exact, fetches, file, loader, module, native, project,
    settings,
};

const GO_PATHS: ProjectRest = ProjectRest {
    is_open: true,
    options: ProjectOptions {
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
    operands: ProjectOperands::Paths,
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

pub(super) const ROWS: &[ProjectRow] = &[
    // Tests are programs. A build can run the compiler that cgo names, and `generate` runs commands
    // in comments.
    ProjectRow {
        names: &["go"],
        decides: "go.mod, tests, go:generate comments",
        markers: &["go.mod", "go.work"],
        style: ProjectOptionStyle::Words,
        front: ProjectOptions {
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
    ProjectRow {
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
    ProjectRow {
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
        style: ProjectOptionStyle::Words,
        otherwise: project(&[], exact(GRADLE_ELSEWHERE)),
        ..ROW
    },
    ProjectRow {
        names: &["mvn", "mvnw", "mvnd"],
        decides: "pom.xml and its plug-ins",
        markers: &["pom.xml"],
        manifests: &[
            ".mvn/maven.config",
            ".mvn/extensions.xml",
            ".mvn/jvm.config",
            "mvnw",
        ],
        style: ProjectOptionStyle::Words,
        otherwise: project(
            &[],
            ProjectRest {
                options: ProjectOptions {
                    // These options begin with `-f` but mean something else.
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
    ProjectRow {
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
        style: ProjectOptionStyle::Words,
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
    // Solutions and projects are files with any name. Building runs their targets and analyzers.
    ProjectRow {
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
        style: ProjectOptionStyle::Words,
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
    ProjectRow {
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
        style: ProjectOptionStyle::Words,
        otherwise: super::verb(&[], Does::Unlisted, EXACT),
        alone: Does::Unlisted,
        ..ROW
    },
    ProjectRow {
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
        style: ProjectOptionStyle::Words,
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
