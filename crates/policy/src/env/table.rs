//! The table of variables that change what a program does, as classes with their reason.
//!
//! A key stands in exactly one list. Keys are written and compared upper-case: on Linux `ld_preload`
//! is another variable than `LD_PRELOAD`, but refusing both costs nothing and holds everywhere.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Variables that are dangerous for one and the same reason.
#[derive(Debug, PartialEq, Eq)]
pub struct EnvClass {
    /// Short name, for messages and reports.
    pub name: &'static str,
    /// Why a caller may not set them.
    pub reason: &'static str,
    /// Neither set by a caller nor passed on from the service's own environment.
    pub everywhere: &'static [&'static str],
    /// Not set by a caller; not passed on either.
    pub overrides: &'static [&'static str],
    /// Not set by a caller; passed on when the owner's own environment has them.
    pub inheritable: &'static [&'static str],
    /// Name prefixes with the meaning of `everywhere`.
    pub everywhere_prefixes: &'static [&'static str],
    /// Name prefixes with the meaning of `inheritable`.
    pub inheritable_prefixes: &'static [&'static str],
    /// Names that begin with the first and end in the second part and have something in between;
    /// with the meaning of `everywhere`.
    pub everywhere_patterns: &'static [(&'static str, &'static str)],
}

/// Where a listed variable is held back. Absent from the table means: free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Held back from callers and from inheritance.
    Everywhere,
    /// Listed for callers only, yet not inherited.
    Override,
    /// Held back from callers, inherited from the owner.
    OverrideInheritable,
}

impl Scope {
    pub fn is_inherited(self) -> bool {
        self == Self::OverrideInheritable
    }
}

/// The class of a variable that is not free, so that a refusal can say why.
pub fn classify(key: &str) -> Option<&'static EnvClass> {
    find(key).map(|(_, class)| class)
}

/// Where the variable is held back; `None` for a free one.
pub fn scope(key: &str) -> Option<Scope> {
    find(key).map(|(scope, _)| scope)
}

fn find(key: &str) -> Option<(Scope, &'static EnvClass)> {
    let key = key.to_ascii_uppercase();
    if let Some(found) = INDEX.get(key.as_str()) {
        return Some(*found);
    }
    CLASSES.iter().find_map(|class| {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| key.starts_with(prefix));
        let fits = class.everywhere_patterns.iter().any(|(head, tail)| {
            key.strip_prefix(head)
                .and_then(|rest| rest.strip_suffix(tail))
                .is_some_and(|middle| !middle.is_empty())
        });
        if fits || begins(class.everywhere_prefixes) {
            Some((Scope::Everywhere, class))
        } else if begins(class.inheritable_prefixes) {
            Some((Scope::OverrideInheritable, class))
        } else {
            None
        }
    })
}

static INDEX: LazyLock<HashMap<&'static str, (Scope, &'static EnvClass)>> = LazyLock::new(|| {
    CLASSES
        .iter()
        .flat_map(|class| {
            let lists = [
                (Scope::Everywhere, class.everywhere),
                (Scope::Override, class.overrides),
                (Scope::OverrideInheritable, class.inheritable),
            ];
            lists
                .into_iter()
                .flat_map(move |(scope, keys)| keys.iter().map(move |key| (*key, (scope, class))))
        })
        .collect()
});

/// A class with nothing listed; rows below fill in what they have.
const EMPTY: EnvClass = EnvClass {
    name: "",
    reason: "",
    everywhere: &[],
    overrides: &[],
    inheritable: &[],
    everywhere_prefixes: &[],
    inheritable_prefixes: &[],
    everywhere_patterns: &[],
};

#[rustfmt::skip]
pub static CLASSES: &[EnvClass] = &[
    EnvClass {
        name: "program search path",
        reason: "it decides which file a bare command name starts, so what was judged would not be what runs",
        inheritable: &["PATH"],
        ..EMPTY
    },
    EnvClass {
        name: "loader",
        reason: "the dynamic loader or the C library loads code or changes its checks because of it",
        everywhere: &["GCONV_PATH", "GLIBC_TUNABLES"],
        everywhere_prefixes: &["DYLD_", "LD_"],
        ..EMPTY
    },
    EnvClass {
        name: "shell start-up",
        reason: "a shell runs it, reads a file it names, or splits and traces commands by it",
        everywhere: &[
            "BASHOPTS", "BASH_ENV", "ENV", "FPATH", "IFS", "KSH_ENV", "PS4", "SHELL", "SHELLOPTS",
        ],
        overrides: &["PROMPT_COMMAND"],
        inheritable: &["HISTFILE", "ZDOTDIR"],
        everywhere_prefixes: &["BASH_FUNC_"],
        ..EMPTY
    },
    EnvClass {
        name: "interpreter hook",
        reason: "an interpreter or virtual machine loads modules, runs code or takes options from it",
        everywhere: &[
            // Node
            "NODE_OPTIONS", "NODE_PATH", "NODE_REDIRECT_WARNINGS", "NODE_REPL_EXTERNAL_MODULE",
            "NODE_REPL_HISTORY", "NODE_V8_COVERAGE",
            // Python, Perl, Ruby, Lua, Tcl, Emacs Lisp
            "PYTHONBREAKPOINT", "PYTHONHOME", "PYTHONPATH",
            "PERL5LIB", "PERL5OPT",
            "RUBYLIB", "RUBYOPT", "RUBYSHELL",
            "LUA_INIT", "LUA_INIT_5_1", "LUA_INIT_5_2", "LUA_INIT_5_3", "LUA_INIT_5_4",
            "TCLLIBPATH", "EMACSLOADPATH",
            // Java and .NET
            "CATALINA_OPTS", "JAVA_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS",
            "CORECLR_PROFILER", "DOTNET_ADDITIONAL_DEPS", "DOTNET_STARTUP_HOOKS",
            // Erlang and R
            "ELIXIR_ERL_OPTIONS", "ERL_AFLAGS", "ERL_FLAGS", "ERL_ZFLAGS",
            "R_ENVIRON", "R_ENVIRON_USER", "R_PROFILE", "R_PROFILE_USER",
        ],
        overrides: &[
            "CLASSPATH", "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "CORECLR_PROFILER_PATH", "DENO_DIR",
            "GEM_HOME", "GEM_PATH", "LUA_CPATH", "LUA_PATH", "PERL5DB", "PERL5DBCMD", "PHPRC",
            "PHP_INI_SCAN_DIR", "PYTHONSTARTUP", "PYTHONUSERBASE", "R_LIBS_USER", "UV_PYTHON",
            "VIRTUAL_ENV",
        ],
        ..EMPTY
    },
    EnvClass {
        name: "build-tool hook",
        reason: "a build tool starts the program it names, or passes its text to compiler, linker or build script",
        everywhere: &[
            "CC", "CPP", "CXX", "CXXCPP",
            "CARGO_BUILD_RUSTC", "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER",
            "CARGO_BUILD_RUSTDOC", "RUSTC", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "RUSTDOC",
            "CMAKE_CXX_COMPILER", "CMAKE_C_COMPILER", "CMAKE_TOOLCHAIN_FILE",
            "CONFIG_SHELL", "CONFIG_SITE", "MAKE", "MAKEFLAGS", "MFLAGS",
            "ANT_OPTS", "GRADLE_OPTS", "MAVEN_OPTS", "SBT_OPTS",
        ],
        overrides: &[
            "CARGO_HOME", "CFLAGS", "CGO_CFLAGS", "CGO_LDFLAGS", "CPATH", "CPLUS_INCLUDE_PATH",
            "C_INCLUDE_PATH", "GOENV", "GOFLAGS", "GOPATH", "LDFLAGS", "LIBRARY_PATH",
            "OBJC_INCLUDE_PATH", "RUSTFLAGS",
        ],
        inheritable: &["GRADLE_USER_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"],
        everywhere_patterns: &[("CARGO_TARGET_", "_LINKER"), ("CARGO_TARGET_", "_RUNNER")],
        ..EMPTY
    },
    EnvClass {
        name: "version control",
        reason: "a version-control tool starts the program it names, or works on another repository, config or hook directory",
        everywhere: &[
            "GIT_ALLOW_PROTOCOL", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR",
            "GIT_EDITOR", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_HOOK_PATH", "GIT_INDEX_FILE",
            "GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY", "GIT_PROTOCOL_FROM_USER", "GIT_SEQUENCE_EDITOR",
            "GIT_TEMPLATE_DIR", "GIT_WORK_TREE",
            "BZR_EDITOR", "BZR_PLUGIN_PATH", "BZR_SSH", "HGEDITOR", "HGMERGE", "HGRCPATH",
            "SVN_EDITOR", "SVN_SSH",
        ],
        overrides: &["GIT_ASKPASS", "GIT_PROXY_COMMAND", "GIT_SSH", "GIT_SSH_COMMAND"],
        inheritable: &["GIT_PAGER"],
        inheritable_prefixes: &["GIT_CONFIG_"],
        ..EMPTY
    },
    EnvClass {
        name: "helper program",
        reason: "tools start the editor, pager, browser or password helper it names, or run its commands at start-up",
        everywhere: &[
            "BROWSER", "EXINIT", "GVIMINIT", "JULIA_EDITOR", "MYVIMRC", "SUDO_ASKPASS", "VIMINIT",
        ],
        overrides: &[
            "EDITOR", "FCEDIT", "LESSCLOSE", "LESSOPEN", "SSH_ASKPASS", "SUDO_EDITOR", "VISUAL",
        ],
        inheritable: &["MANPAGER", "PAGER"],
        ..EMPTY
    },
    EnvClass {
        name: "tool config or plugins",
        reason: "a tool reads the config it names, or loads plugins and modules from there",
        everywhere: &["HELM_PLUGINS", "PACKER_PLUGIN_PATH", "VAGRANT_VAGRANTFILE"],
        overrides: &[
            "ANSIBLE_CALLBACK_PLUGINS", "ANSIBLE_COLLECTIONS_PATH", "ANSIBLE_CONFIG",
            "ANSIBLE_CONNECTION_PLUGINS", "ANSIBLE_FILTER_PLUGINS", "ANSIBLE_INVENTORY_PLUGINS",
            "ANSIBLE_LIBRARY", "ANSIBLE_LOOKUP_PLUGINS", "ANSIBLE_MODULE_UTILS",
            "ANSIBLE_REMOTE_TEMP", "ANSIBLE_ROLES_PATH", "ANSIBLE_STRATEGY_PLUGINS",
            "BUNDLE_GEMFILE", "COMPOSER_HOME", "CURL_HOME", "HELM_HOME", "OPENSSL_CONF",
            "OPENSSL_ENGINES", "TF_CLI_CONFIG_FILE", "TF_PLUGIN_CACHE_DIR", "WGETRC",
            "YARN_RC_FILENAME",
        ],
        inheritable_prefixes: &["TF_VAR_"],
        ..EMPTY
    },
    EnvClass {
        name: "package source",
        reason: "a package manager fetches code from the place it names, or skips the check of what it fetched",
        overrides: &[
            "BUN_CONFIG_REGISTRY", "GONOPROXY", "GONOSUMCHECK", "GONOSUMDB", "GOPRIVATE", "GOPROXY",
            "PIP_CONFIG_FILE", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL",
            "PIP_PYPI_URL", "PIP_TRUSTED_HOST", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL",
            "UV_INDEX", "UV_INDEX_URL",
        ],
        inheritable: &["RUSTUP_DIST_ROOT", "RUSTUP_DIST_SERVER", "RUSTUP_UPDATE_ROOT"],
        inheritable_prefixes: &["CARGO_REGISTRIES_", "NPM_CONFIG_"],
        ..EMPTY
    },
    EnvClass {
        name: "network trust",
        reason: "it sends traffic through another machine, changes which certificates are trusted, or writes out session keys",
        everywhere: &[
            "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_NO_VERIFY", "HOSTALIASES", "SSLKEYLOGFILE",
        ],
        inheritable: &[
            "ALL_PROXY", "CURL_CA_BUNDLE", "HTTPS_PROXY", "HTTP_PROXY", "NODE_EXTRA_CA_CERTS",
            "NODE_TLS_REJECT_UNAUTHORIZED", "NO_PROXY", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR",
            "SSL_CERT_FILE",
        ],
        ..EMPTY
    },
    EnvClass {
        name: "remote target",
        reason: "a client works on the container host or cluster it names instead of the owner's",
        inheritable: &[
            "DOCKER_CERT_PATH", "DOCKER_CONTEXT", "DOCKER_HOST", "DOCKER_TLS_VERIFY", "KUBECONFIG",
        ],
        ..EMPTY
    },
    EnvClass {
        name: "credentials",
        reason: "it says as whom, or with which secret, a program talks to a service",
        overrides: &[
            "AMQP_URL", "AWS_ACCESS_KEY_ID", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN",
            "AWS_SESSION_TOKEN", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "DATABASE_URL",
            "GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "MONGODB_URI", "NODE_AUTH_TOKEN",
            "NPM_TOKEN", "REDIS_URL",
        ],
        inheritable: &[
            "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AZURE_AUTH_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_AUTH_SOCK",
        ],
        ..EMPTY
    },
    EnvClass {
        name: "home directories",
        reason: "programs find their config, data and start-up files below the directory it names",
        inheritable: &[
            "HOME", "SYSTEMROOT", "WINDIR", "XDG_CACHE_HOME", "XDG_CONFIG_DIRS", "XDG_CONFIG_HOME",
            "XDG_DATA_DIRS", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
        ],
        ..EMPTY
    },
    // The classes below go beyond what the reference lists: the owner's own values are passed on,
    // a caller may not set them.
    EnvClass {
        name: "options of a tool",
        reason: "a tool takes options or a config file from it, and those can start programs or load code",
        inheritable: &[
            "AWS_ENDPOINT_URL", "BAT_CONFIG_PATH", "BAT_OPTS", "FZF_DEFAULT_OPTS", "FZF_DEFAULT_OPTS_FILE",
            "GH_CONFIG_DIR", "GIT_CONFIG", "GNUMAKEFLAGS", "GNUPGHOME", "GOTOOLCHAIN", "GREP_OPTIONS", "GZIP",
            "INPUTRC", "LESS", "LESSKEY", "LESSKEYIN", "LESSKEYIN_SYSTEM", "LESSKEY_CONTENT", "LESSKEY_SYSTEM",
            "MAKEFILES", "MANOPT", "MANROFFOPT", "MAVEN_ARGS", "MORE", "MYSQL_HOME", "POSIXLY_CORRECT", "PSQLRC",
            "RIPGREP_CONFIG_PATH", "TAR_OPTIONS", "TERMINFO", "TERMINFO_DIRS", "TF_DATA_DIR", "UNZIP", "UNZIPOPT",
            "XZ_DEFAULTS", "XZ_OPT", "ZIPOPT",
        ],
        inheritable_prefixes: &["CARGO_ALIAS_", "TF_CLI_ARGS", "YARN_"],
        ..EMPTY
    },
    EnvClass {
        name: "program behind a tool",
        reason: "a tool starts the program that it names",
        inheritable: &[
            "AWS_PAGER", "BAT_PAGER", "CVS_RSH", "DELTA_PAGER", "EMACS", "FZF_DEFAULT_COMMAND", "GH_BROWSER",
            "GH_EDITOR", "GH_PAGER", "GOCACHEPROG", "JAVA_HOME", "KUBECTL_EXTERNAL_DIFF", "KUBE_EDITOR", "PSQL_EDITOR",
            "PSQL_PAGER", "RSYNC_RSH", "SSH_SK_HELPER", "SYSTEMD_EDITOR", "SYSTEMD_LESS", "SYSTEMD_PAGER",
                    ],
        ..EMPTY
    },
    EnvClass {
        name: "code search path",
        reason: "modules, plug-ins or toolchains are loaded from where it points",
        inheritable: &[
            "CAML_LD_LIBRARY_PATH", "CARGO_BUILD_RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CGO_CPPFLAGS",
            "CGO_CXXFLAGS", "CMAKE_MODULE_PATH", "CMAKE_PREFIX_PATH", "CXXFLAGS", "DOTNET_ROOT", "ERL_LIBS",
            "GDK_PIXBUF_MODULE_FILE", "GHC_PACKAGE_PATH", "GIO_EXTRA_MODULES", "GIO_MODULE_DIR", "GOBIN", "GOROOT",
            "GST_PLUGIN_PATH", "GTK_MODULES", "GTK_PATH", "GUILE_LOAD_COMPILED_PATH", "GUILE_LOAD_PATH",
            "JULIA_DEPOT_PATH", "JULIA_LOAD_PATH", "JULIA_PROJECT", "LIBGL_DRIVERS_PATH", "LOCPATH", "NIX_PATH",
            "NLSPATH", "OCAMLPATH", "OCL_ICD_VENDORS", "OPENSSL_MODULES", "PERLLIB", "PKG_CONFIG_PATH",
            "PYTHONEXECUTABLE", "PYTHONINSPECT", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PYTHONWARNINGS",
            "QML2_IMPORT_PATH", "QT_PLUGIN_PATH", "RUBYPATH", "RUSTDOCFLAGS", "VK_ADD_LAYER_PATH", "VK_LAYER_PATH",
        ],
        everywhere_patterns: &[("CARGO_TARGET_", "_RUSTFLAGS")],
        ..EMPTY
    },
    EnvClass {
        name: "trace or profile file",
        reason: "a program writes a file where it points",
        inheritable: &[
            "ASAN_OPTIONS", "BASH_XTRACEFD", "GCOV_PREFIX", "GIT_REDIRECT_STDERR", "GIT_REDIRECT_STDIN",
            "GIT_REDIRECT_STDOUT", "GMON_OUT_PREFIX", "LLVM_PROFILE_FILE", "LSAN_OPTIONS", "MSAN_OPTIONS",
            "TSAN_OPTIONS", "UBSAN_OPTIONS",
        ],
        inheritable_prefixes: &["GIT_TRACE"],
        ..EMPTY
    },
];
