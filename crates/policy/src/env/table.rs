//! The table of variables that change what a program does, as classes with reasons.
//!
//! Each key is in exactly one list. Keys are written and compared in upper case: on Linux
//! `ld_preload` differs from `LD_PRELOAD`, but refusing both costs nothing and is right on every
//! platform.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Variables that are dangerous for the same reason.
#[derive(Debug, PartialEq, Eq)]
pub struct EnvClass {
    /// The short name, for messages and reports.
    pub name: &'static str,
    /// Why a caller may not set these variables.
    pub reason: &'static str,
    /// Names that neither a caller sets nor a run inherits.
    pub everywhere: &'static [&'static str],
    /// Names that a caller may not set. Runs do not inherit them either.
    pub overrides: &'static [&'static str],
    /// Names that a caller may not set. Runs inherit them from the owner's own environment.
    pub inheritable: &'static [&'static str],
    /// Name prefixes, treated like `everywhere`.
    pub everywhere_prefixes: &'static [&'static str],
    /// Name prefixes, treated like `inheritable`.
    pub inheritable_prefixes: &'static [&'static str],
    /// A prefix and a suffix, for names with something in between; treated like `everywhere`.
    pub everywhere_patterns: &'static [(&'static str, &'static str)],
}

/// Where a listed variable is held back. A variable that is not in the table is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvScope {
    /// Held back from callers and not inherited.
    Everywhere,
    /// Listed for callers only, but not inherited either.
    Override,
    /// Held back from callers, but inherited from the owner.
    OverrideInheritable,
}

impl EnvScope {
    pub fn is_inherited(self) -> bool {
        self == Self::OverrideInheritable
    }
}

/// Returns the class of a variable that is not free, so that a refusal can say why.
pub fn classify(key: &str) -> Option<&'static EnvClass> {
    find(key).map(|(_, class)| class)
}

/// Returns where the variable is held back, or `None` if it is free.
pub fn scope(key: &str) -> Option<EnvScope> {
    find(key).map(|(scope, _)| scope)
}

fn find(key: &str) -> Option<(EnvScope, &'static EnvClass)> {
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
            Some((EnvScope::Everywhere, class))
        } else if begins(class.inheritable_prefixes) {
            Some((EnvScope::OverrideInheritable, class))
        } else {
            None
        }
    })
}

static INDEX: LazyLock<HashMap<&'static str, (EnvScope, &'static EnvClass)>> =
    LazyLock::new(|| {
        CLASSES
            .iter()
            .flat_map(|class| {
                let lists = [
                    (EnvScope::Everywhere, class.everywhere),
                    (EnvScope::Override, class.overrides),
                    (EnvScope::OverrideInheritable, class.inheritable),
                ];
                lists.into_iter().flat_map(move |(scope, keys)| {
                    keys.iter().map(move |key| (*key, (scope, class)))
                })
            })
            .collect()
    });

/// A class with empty lists, for the rows below to fill.
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
    // The classes below go beyond the reference: runs inherit the owner's own values, but a caller
    // may not set them.
    EnvClass {
        name: "options of a tool",
        reason: "a tool takes options or a config file from it, and those can start programs or load code",
        inheritable: &[
            "ACKRC", "ACK_OPTIONS", "ANSIBLE_ACTION_PLUGINS", "ANSIBLE_BECOME_PLUGINS",
            "ANSIBLE_CACHE_PLUGINS", "ANSIBLE_CLICONF_PLUGINS", "ANSIBLE_DOC_FRAGMENT_PLUGINS",
            "ANSIBLE_HOME", "ANSIBLE_HTTPAPI_PLUGINS", "ANSIBLE_INVENTORY", "ANSIBLE_LOCAL_TEMP",
            "ANSIBLE_NETCONF_PLUGINS", "ANSIBLE_SSH_ARGS", "ANSIBLE_SSH_COMMON_ARGS",
            "ANSIBLE_SSH_EXTRA_ARGS", "ANSIBLE_TERMINAL_PLUGINS", "ANSIBLE_TEST_PLUGINS",
            "ANSIBLE_VARS_PLUGINS", "ANSIBLE_VAULT_PASSWORD_FILE", "ANT_ARGS", "ASDF_CONFIG_FILE",
            "ASDF_DATA_DIR", "ASDF_DIR", "AWS_CA_BUNDLE", "AWS_DATA_PATH", "AWS_ENDPOINT_URL",
            "AZURE_CONFIG_DIR", "AZURE_EXTENSION_DIR", "BAT_CONFIG_PATH", "BAT_OPTS",
            "BAZELISK_BASE_URL", "BAZELISK_FORMAT_URL", "BOTO_CONFIG", "BUILDKIT_HOST",
            "BUILDX_CONFIG", "BUNDLE_APP_CONFIG", "BUNDLE_USER_CONFIG", "BUNDLE_USER_HOME",
            "BUNDLE_USER_PLUGIN", "BUN_INSTALL", "BUN_OPTIONS", "CARGO_HTTP_CAINFO",
            "CARGO_HTTP_PROXY", "CARGO_NET_GIT_FETCH_WITH_CLI", "CCACHE_CONFIGPATH", "CDPATH",
            "CLIPPY_CONF_DIR", "CLJ_CONFIG", "CLOUDSDK_CONFIG", "CLOUDSDK_PYTHON_ARGS", "COMPOSER",
            "COMPOSER_AUTH", "COMPOSER_BIN_DIR", "COMPOSER_VENDOR_DIR", "COMPOSE_ENV_FILES",
            "COMPOSE_FILE", "CONDARC", "CONTAINERS_CONF", "CONTAINERS_REGISTRIES_CONF",
            "CONTAINERS_STORAGE_CONF", "CONTAINER_HOST", "COREPACK_HOME", "COREPACK_NPM_REGISTRY",
            "COVERAGE_PROCESS_START", "COVERAGE_RCFILE", "CPPFLAGS", "DENO_INSTALL_ROOT",
            "DENO_V8_FLAGS", "DIRENV_CONFIG", "DOCKER_CONFIG", "DOTENV_CONFIG_PATH",
            "ELECTRON_RUN_AS_NODE", "ELINKS_CONFDIR", "EMACSDATA", "EMACSPATH", "EXECIGNORE",
            "FCFLAGS", "FFLAGS", "FONTCONFIG_FILE", "FONTCONFIG_PATH", "FZF_DEFAULT_OPTS",
            "FZF_DEFAULT_OPTS_FILE", "GEMRC", "GETCONF_DIR", "GH_CONFIG_DIR", "GIT_ATTR_SOURCE",
            "GIT_CONFIG", "GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE",
            "GIT_SSH_VARIANT", "GLOBIGNORE", "GNUMAKEFLAGS", "GNUPGHOME", "GOAUTH", "GOINSECURE",
            "GOMODCACHE", "GOSUMDB", "GOTOOLCHAIN", "GOVCS", "GOWORK", "GREP_OPTIONS",
            "GROFF_COMMAND_PREFIX", "GROFF_FONT_PATH", "GROFF_TMAC_PATH", "GS_LIB", "GS_OPTIONS",
            "GZIP", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HELM_REGISTRY_CONFIG",
            "HELM_REPOSITORY_CONFIG", "HTOPRC", "HTTPIE_CONFIG_DIR", "IBM_JAVA_OPTIONS", "INPUTRC",
            "IPYTHONDIR", "IRBRC", "JAVA_OPTIONS", "JJ_CONFIG", "JUPYTER_CONFIG_DIR",
            "JUPYTER_CONFIG_PATH", "JUPYTER_DATA_DIR", "JUPYTER_PATH", "JVM_OPTS", "KRB5_CONFIG",
            "KRB5_KTNAME", "LDAPCONF", "LDAPRC", "LDLIBS", "LEIN_JVM_OPTS", "LESS", "LESSKEY",
            "LESSKEYIN", "LESSKEYIN_SYSTEM", "LESSKEY_CONTENT", "LESSKEY_SYSTEM", "LOCALDOMAIN",
            "LYNX_CFG", "LYNX_CFG_PATH", "MAGICK_CODER_MODULE_PATH", "MAGICK_CONFIGURE_PATH",
            "MAILCAPS", "MAILRC", "MAKEFILES", "MAMBA_ROOT_PREFIX", "MANOPT", "MANPATH",
            "MANROFFOPT", "MATPLOTLIBRC", "MAVEN_ARGS", "MIRIFLAGS", "MORE", "MPLBACKEND",
            "MPLCONFIGDIR", "MVNW_REPOURL", "MYPYPATH", "MYSQL_HOME", "MYSQL_TEST_LOGIN_FILE",
            "NETRC", "NIS_PATH", "NNN_OPTS", "NNN_PLUG", "NODE_COMPILE_CACHE", "NODE_ICU_DATA",
            "NVM_DIR", "ODBCINI", "ODBCSYSINI", "OPENJ9_JAVA_OPTIONS", "P4CONFIG", "PACKER_CONFIG",
            "PACKER_CONFIG_DIR", "PASSWORD_STORE_DIR", "PASSWORD_STORE_ENABLE_EXTENSIONS",
            "PASSWORD_STORE_EXTENSIONS_DIR", "PERF_CONFIG", "PERLTIDY", "PERL_CPANM_OPT",
            "PERL_MB_OPT", "PERL_MM_OPT", "PGOPTIONS", "PGPASSFILE", "PGSERVICEFILE",
            "PGSYSCONFDIR", "PIPENV_PIPFILE", "PIPENV_PYPI_MIRROR", "PNPM_HOME", "POSIXLY_CORRECT",
            "PRYRC", "PS0", "PS1", "PS2", "PS3", "PSQLRC", "PULUMI_HOME", "PYENV_ROOT",
            "PYENV_VERSION", "PYLINTHOME", "PYLINTRC", "PYTEST_ADDOPTS", "PYTEST_PLUGINS",
            "RAKEOPT", "RBENV_ROOT", "RBENV_VERSION", "REGISTRY_AUTH_FILE", "RESOLV_HOST_CONF",
            "RES_OPTIONS", "RIPGREP_CONFIG_PATH", "RSYNC_PROXY", "RUBYGEMS_GEMDEPS",
            "RUBYGEMS_HOST", "SASL_CONF_PATH", "SASL_PATH", "SCCACHE_CONF", "SCCACHE_ERROR_LOG",
            "SCONSFLAGS", "SCREENRC", "SDKMAN_DIR", "SOFTHSM2_CONF", "SPEC_OPTS", "SQLITE_TMPDIR",
            "SSH_ASKPASS_REQUIRE", "STARSHIP_CONFIG", "SVNCONFIG", "TAR_OPTIONS", "TASKDATA",
            "TASKRC", "TERMCAP", "TERMINFO", "TERMINFO_DIRS", "TERRAGRUNT_CONFIG", "TEXINPUTS",
            "TEXMFCNF", "TEXMFHOME", "TF_DATA_DIR", "TF_REATTACH_PROVIDERS", "TIGRC_SYSTEM",
            "TIGRC_USER", "TMUX_TMPDIR", "TNS_ADMIN", "TOX_CONFIG_FILE", "TSX_TSCONFIG_PATH",
            "TZDIR", "UNZIP", "UNZIPOPT", "UV_CONFIG_FILE", "UV_FIND_LINKS", "UV_INSECURE_HOST",
            "UV_PROJECT_ENVIRONMENT", "UV_PYTHON_INSTALL_MIRROR", "UV_TOOL_DIR", "VAGRANT_CWD",
            "VAGRANT_HOME", "VALGRIND_LIB", "VALGRIND_OPTS", "VIM", "VIMRUNTIME", "VOLTA_HOME",
            "WGET2RC", "XLOCALEDIR", "XZ_DEFAULTS", "XZ_OPT", "ZIPOPT",
        ],
        inheritable_prefixes: &[
            "AWS_ENDPOINT_URL_", "BORG_", "BUNDLER_ORIG_", "CARGO_ALIAS_", "CARGO_CREDENTIAL_",
            "CARGO_HOST_", "CARGO_REGISTRY_", "CARGO_SOURCE_", "DISTCC_", "LDAPTLS_", "MISE_",
            "POETRY_HTTP_BASIC_", "POETRY_REPOSITORIES_", "RCLONE_", "RESTIC_", "TF_CLI_ARGS",
            "TS_NODE_", "YARN_",
        ],
        ..EMPTY
    },
    EnvClass {
        name: "program behind a tool",
        reason: "a tool starts the program that it names",
        inheritable: &[
            "ACK_PAGER", "ACLOCAL", "ANSIBLE_BECOME_EXE", "ANSIBLE_EXECUTABLE",
            "ANSIBLE_PYTHON_INTERPRETER", "ANSIBLE_SSH_EXECUTABLE", "AR", "AS", "AUTOCONF",
            "AUTOHEADER", "AUTOM4TE", "AUTOMAKE", "AWS_PAGER", "BAT_PAGER", "CARGO",
            "CCACHE_COMPILER", "CCACHE_PREFIX", "CCACHE_PREFIX_CPP", "CLIPPY_DRIVER_PATH",
            "CLOUDSDK_PYTHON", "CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CXX_LINKER_LAUNCHER",
            "CMAKE_C_COMPILER_LAUNCHER", "CMAKE_C_LINKER_LAUNCHER", "COMPILER_PATH",
            "CROSS_COMPILE", "CVSEDITOR", "CVS_RSH", "CVS_SERVER", "DELTA_PAGER", "DIFFPROG",
            "EMACS", "F77", "FC", "FZF_DEFAULT_COMMAND", "GCCGO", "GCC_EXEC_PREFIX", "GH_BROWSER",
            "GH_EDITOR", "GH_PAGER", "GOCACHEPROG", "HOSTCC", "HOSTCXX", "JAVACMD", "JAVA_HOME",
            "JDK_HOME", "JJ_EDITOR", "KUBECTL_EXTERNAL_DIFF", "KUBE_EDITOR", "LD", "LESSECHO",
            "LEX", "M4", "NM", "NNN_OPENER", "OBJCOPY", "OBJDUMP", "P4DIFF", "P4EDITOR", "P4MERGE",
            "PERF_EXEC_PATH", "PERF_PAGER", "PERL5SHELL", "PKG_CONFIG", "PSQL_EDITOR", "PSQL_PAGER",
            "RANLIB", "RESTIC_PASSWORD_COMMAND", "RSYNC_CONNECT_PROG", "RSYNC_RSH", "RUSTC_LINKER",
            "RUSTFMT", "SOPS_EDITOR", "SSH_SK_HELPER", "STRIP", "SVN_MERGE", "SYSTEMD_EDITOR",
            "SYSTEMD_LESS", "SYSTEMD_PAGER", "TERMINAL", "TERRAGRUNT_TFPATH", "WINDRES", "YACC",
        ],
        ..EMPTY
    },
    EnvClass {
        name: "code search path",
        reason: "modules, plug-ins or toolchains are loaded from where it points",
        inheritable: &[
            "ACLOCAL_PATH", "BASH_LOADABLES_PATH", "CAML_LD_LIBRARY_PATH", "CARGO_BUILD_RUSTFLAGS",
            "CARGO_ENCODED_RUSTDOCFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CGO_CPPFLAGS", "CGO_CXXFLAGS",
            "CGO_FFLAGS", "CMAKE_INCLUDE_PATH", "CMAKE_LIBRARY_PATH", "CMAKE_MODULE_PATH",
            "CMAKE_PREFIX_PATH", "CMAKE_PROGRAM_PATH", "CXXFLAGS", "DOTNET_ROOT", "ERL_LIBS",
            "GDK_PIXBUF_MODULE_FILE", "GHC_PACKAGE_PATH", "GIO_EXTRA_MODULES", "GIO_MODULE_DIR",
            "GOBIN", "GOROOT", "GRADLE_HOME", "GST_PLUGIN_PATH", "GTK_MODULES", "GTK_PATH",
            "GUILE_LOAD_COMPILED_PATH", "GUILE_LOAD_PATH", "JULIA_DEPOT_PATH", "JULIA_LOAD_PATH",
            "JULIA_PROJECT", "LEIN_HOME", "LIBGL_DRIVERS_PATH", "LIBMYSQL_PLUGINS",
            "LIBMYSQL_PLUGIN_DIR", "LOCPATH", "M2_HOME", "MAVEN_HOME", "MODULEPATH", "MODULESHOME",
            "NIX_PATH", "NLSPATH", "OCAMLPATH", "OCL_ICD_VENDORS", "OPENSSL_MODULES", "ORACLE_HOME",
            "P11_KIT_CONFIG_DIR", "PERLLIB", "PERL_LOCAL_LIB_ROOT", "PKCS11_MODULE_PATH",
            "PKG_CONFIG_LIBDIR", "PKG_CONFIG_PATH", "PKG_CONFIG_SYSROOT_DIR", "PYTHONCASEOK",
            "PYTHONEXECUTABLE", "PYTHONINSPECT", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX",
            "PYTHONTZPATH", "PYTHONWARNINGS", "QML2_IMPORT_PATH", "QT_PLUGIN_PATH",
            "QT_QPA_PLATFORM_PLUGIN_PATH", "RUBYPATH", "RUSTDOCFLAGS", "SCALA_HOME",
            "VK_ADD_LAYER_PATH", "VK_LAYER_PATH",
        ],
        everywhere_patterns: &[("CARGO_TARGET_", "_RUSTDOCFLAGS"), ("CARGO_TARGET_", "_RUSTFLAGS")],
        ..EMPTY
    },
    EnvClass {
        name: "trace or profile file",
        reason: "a program writes a file where it points",
        inheritable: &[
            "ASAN_OPTIONS", "BASH_XTRACEFD", "COVERAGE_FILE", "DEPENDENCIES_OUTPUT", "GCOV_PREFIX",
            "GDBHISTFILE", "GIT_REDIRECT_STDERR", "GIT_REDIRECT_STDIN", "GIT_REDIRECT_STDOUT",
            "GMON_OUT_PREFIX", "LESSHISTFILE", "LLVM_PROFILE_FILE", "LSAN_OPTIONS", "MALLOC_TRACE",
            "MSAN_OPTIONS", "MYSQL_HISTFILE", "PERLIO_DEBUG", "PYTHONDUMPREFSFILE",
            "PYTHON_HISTORY", "SQLITE_HISTORY", "SUNPRO_DEPENDENCIES", "TSAN_OPTIONS",
            "UBSAN_OPTIONS",
        ],
        inheritable_prefixes: &["GIT_TRACE"],
        ..EMPTY
    },
];
