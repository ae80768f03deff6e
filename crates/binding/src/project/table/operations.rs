//! The rows of tools for containers, infrastructure and environments that files of a project
//! describe.

use super::{
    Does, EXACT, ProjectOptionStyle, ProjectOptions, ProjectRow, ROW, directory, exact, file,
    loader, module, native, project, settings, verb,
};

const COMPOSE_ELSEWHERE: &[super::Elsewhere] = &[
    file("-f"),
    file("--file"),
    directory("--project-directory"),
    directory("--workdir"),
    settings("--env-file"),
];

/// Compose builds images with the commands of a Dockerfile, and gives containers the directories
/// that its file names.
const COMPOSE: ProjectRow = ProjectRow {
    names: &["docker-compose", "podman-compose"],
    decides: "the compose file, Dockerfiles and images that it names",
    markers: &[
        "compose.yaml",
        "compose.yml",
        "docker-compose.yml",
        "docker-compose.yaml",
    ],
    manifests: &[
        "docker-compose.override.yml",
        "compose.override.yaml",
        "Dockerfile",
        ".env",
    ],
    front: ProjectOptions {
        flags: &["--all-resources", "--compatibility", "--verbose"],
        values: &[
            "--ansi",
            "--parallel",
            "--profile",
            "--progress",
            "-p",
            "--project-name",
            "-H",
            "--host",
        ],
        elsewhere: COMPOSE_ELSEWHERE,
    },
    verbs: &[native(&[
        "config", "down", "events", "help", "images", "kill", "logs", "ls", "pause", "port", "ps",
        "rm", "stats", "stop", "top", "unpause", "version", "volumes", "wait",
    ])],
    otherwise: project(&[], exact(COMPOSE_ELSEWHERE)),
    alone: Does::Native,
    ..ROW
};

const BUILD_ELSEWHERE: &[super::Elsewhere] = &[
    file("-f"),
    file("--file"),
    settings("--build-context"),
    settings("--secret"),
    settings("--ssh"),
];

const BUILDX: ProjectRow = ProjectRow {
    names: &["buildx"],
    decides: "the Dockerfile or bake file, and what it copies",
    markers: &["Dockerfile", "docker-bake.hcl", "docker-bake.json"],
    verbs: &[project(
        &["build", "b", "bake", "f"],
        exact(BUILD_ELSEWHERE),
    )],
    otherwise: native(&[]),
    alone: Does::Native,
    ..ROW
};

const HELM_ELSEWHERE: &[super::Elsewhere] = &[
    loader("--post-renderer"),
    settings("--kubeconfig"),
    settings("--repository-config"),
    settings("--registry-config"),
];

pub(super) const ROWS: &[ProjectRow] = &[
    COMPOSE,
    // Other subcommands are read like any other program.
    ProjectRow {
        names: &["docker", "podman", "nerdctl", "buildah"],
        decides: "the Dockerfile and what it copies",
        markers: &["Dockerfile", "Containerfile"],
        manifests: &[".dockerignore"],
        front: ProjectOptions {
            flags: &["-D", "--debug"],
            values: &["-H", "--host", "-c", "--context", "-l", "--log-level"],
            elsewhere: &[settings("--config")],
        },
        verbs: &[
            verb(&["compose"], Does::Sub(&COMPOSE), EXACT),
            verb(&["buildx"], Does::Sub(&BUILDX), EXACT),
            project(&["build", "bud"], exact(BUILD_ELSEWHERE)),
        ],
        otherwise: verb(&[], Does::Unlisted, EXACT),
        alone: Does::Unlisted,
        ..ROW
    },
    // Providers are programs, and `local-exec` and external data start further programs.
    ProjectRow {
        names: &["terraform", "tofu", "terragrunt"],
        decides: "the .tf files, providers and modules that they name",
        markers: &["main.tf", "versions.tf", "providers.tf", "terragrunt.hcl"],
        manifests: &[
            ".terraform.lock.hcl",
            "variables.tf",
            "terraform.tfvars",
            "backend.tf",
        ],
        style: ProjectOptionStyle::Words,
        front: ProjectOptions {
            flags: &[],
            values: &[],
            elsewhere: &[directory("-chdir")],
        },
        verbs: &[native(&[
            "fmt",
            "force-unlock",
            "get",
            "graph",
            "help",
            "login",
            "logout",
            "output",
            "show",
            "state",
            "version",
            "workspace",
        ])],
        otherwise: project(
            &[],
            exact(&[
                loader("-plugin-dir"),
                settings("-backend-config"),
                settings("-state"),
                settings("-config"),
            ]),
        ),
        alone: Does::Native,
        ..ROW
    },
    ProjectRow {
        names: &["pulumi", "cdk", "cdktf", "sam", "amplify", "sst"],
        decides: "the program that describes the infrastructure, and its configuration",
        markers: &[
            "Pulumi.yaml",
            "cdk.json",
            "cdktf.json",
            "template.yaml",
            "samconfig.toml",
            "sst.config.ts",
        ],
        front: ProjectOptions {
            flags: &[],
            values: &[],
            elsewhere: &[
                directory("-C"),
                directory("--cwd"),
                loader("-a"),
                loader("--app"),
            ],
        },
        verbs: &[native(&[
            "help", "version", "whoami", "about", "docs", "ls", "list", "stack", "config", "logs",
            "history",
        ])],
        otherwise: project(
            &[],
            exact(&[
                directory("-C"),
                directory("--cwd"),
                loader("--app"),
                loader("-a"),
                module("--policy-pack"),
                file("-t"),
                file("--template-file"),
            ]),
        ),
        alone: Does::Native,
        ..ROW
    },
    ProjectRow {
        names: &["helm", "helmfile"],
        decides: "the chart, its templates and plug-ins",
        markers: &["Chart.yaml", "helmfile.yaml"],
        manifests: &["values.yaml"],
        front: ProjectOptions {
            flags: &["--debug"],
            values: &["-n", "--namespace", "--kube-context"],
            elsewhere: HELM_ELSEWHERE,
        },
        verbs: &[native(&[
            "completion",
            "env",
            "get",
            "help",
            "history",
            "list",
            "ls",
            "repo",
            "search",
            "show",
            "status",
            "verify",
            "version",
        ])],
        otherwise: project(&[], exact(HELM_ELSEWHERE)),
        alone: Does::Native,
        ..ROW
    },
    ProjectRow {
        names: &[
            "ansible-playbook",
            "ansible",
            "ansible-galaxy",
            "ansible-pull",
            "ansible-lint",
            "molecule",
        ],
        decides: "playbooks, roles, inventory and ansible.cfg",
        markers: &[
            "ansible.cfg",
            "site.yml",
            "playbook.yml",
            "requirements.yml",
        ],
        otherwise: project(
            &[],
            exact(&[
                module("-M"),
                module("--module-path"),
                directory("--playbook-dir"),
                settings("--ssh-common-args"),
                settings("--ssh-extra-args"),
            ]),
        ),
        ..ROW
    },
    ProjectRow {
        names: &[
            "vagrant",
            "packer",
            "skaffold",
            "tilt",
            "garden",
            "kustomize",
            "devspace",
            "act",
            "gitlab-runner",
            "dagger",
        ],
        decides: "the project's file for the tool (Vagrantfile, skaffold.yaml, Tiltfile, …)",
        markers: &[
            "Vagrantfile",
            "skaffold.yaml",
            "Tiltfile",
            "kustomization.yaml",
            "devspace.yaml",
            "dagger.json",
            ".github/workflows",
        ],
        verbs: &[native(&[
            "version",
            "help",
            "status",
            "global-status",
            "ssh-config",
        ])],
        otherwise: project(
            &[],
            exact(&[
                file("-f"),
                file("--filename"),
                file("--file"),
                module("--plugin"),
            ]),
        ),
        ..ROW
    },
    ProjectRow {
        names: &[
            "nix",
            "nix-build",
            "nix-shell",
            "nixos-rebuild",
            "home-manager",
            "devbox",
            "guix",
        ],
        decides: "flake.nix or default.nix, and what it builds",
        markers: &["flake.nix", "default.nix", "shell.nix", "devbox.json"],
        verbs: &[native(&[
            "--version",
            "search",
            "flake-show",
            "doctor",
            "help",
        ])],
        otherwise: project(
            &[],
            exact(&[
                file("-f"),
                file("--file"),
                loader("--run"),
                settings("--option"),
                settings("-I"),
            ]),
        ),
        ..ROW
    },
];
