//! The table of secret shapes: the form of secrets, their names, and the options that take them.
//!
//! Every row states its reason. Add a row when a vendor gives its tokens a form, or when a program
//! takes a secret as an argument. A row that masks something else hides what an approver should
//! read, so every row needs a length or a name that leaves no doubt.

/// A token with a prefix that its issuer chose.
pub(super) struct TokenShape {
    pub prefix: &'static str,
    /// The least number of characters after the prefix.
    pub least: usize,
    /// The characters that a token may contain besides ASCII letters and digits.
    pub also: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "read by reviewers and tests"))]
    pub why: &'static str,
}

const fn token(
    prefix: &'static str,
    least: usize,
    also: &'static str,
    why: &'static str,
) -> TokenShape {
    TokenShape {
        prefix,
        least,
        also,
        why,
    }
}

/// A longer prefix comes before a shorter prefix of it.
pub(super) const TOKENS: &[TokenShape] = &[
    token("sk-", 16, "_-", "OpenAI, Anthropic and compatible API keys"),
    token("sk_live_", 16, "_", "Stripe secret key"),
    token("sk_test_", 16, "_", "Stripe secret key, test mode"),
    token("rk_live_", 16, "_", "Stripe restricted key"),
    token("rk_test_", 16, "_", "Stripe restricted key, test mode"),
    token("whsec_", 16, "_+/=", "Stripe webhook secret"),
    token("ghp_", 20, "", "GitHub personal access token"),
    token("gho_", 20, "", "GitHub OAuth token"),
    token("ghu_", 20, "", "GitHub user-to-server token"),
    token("ghs_", 20, "", "GitHub server-to-server token"),
    token("ghr_", 20, "", "GitHub refresh token"),
    token("github_pat_", 20, "_", "GitHub fine-grained token"),
    token("glpat-", 16, "_-", "GitLab personal access token"),
    token("gldt-", 16, "_-", "GitLab deploy token"),
    token("glrt-", 16, "_-", "GitLab runner token"),
    token("glcbt-", 16, "_-", "GitLab CI build token"),
    token("glptt-", 16, "_-", "GitLab pipeline trigger token"),
    token("xoxb-", 10, "-", "Slack bot token"),
    token("xoxp-", 10, "-", "Slack user token"),
    token("xoxa-", 10, "-", "Slack workspace token"),
    token("xoxr-", 10, "-", "Slack refresh token"),
    token("xoxs-", 10, "-", "Slack session token"),
    token("xoxe-", 10, "-", "Slack rotated token"),
    token("xoxc-", 10, "-", "Slack browser token"),
    token("xapp-", 10, "-", "Slack app token"),
    token("AKIA", 16, "", "AWS access key id"),
    token("ASIA", 16, "", "AWS temporary access key id"),
    token("AIza", 30, "_-", "Google API key"),
    token("ya29.", 20, "_-", "Google OAuth access token"),
    token("GOCSPX-", 20, "_-", "Google OAuth client secret"),
    token("npm_", 30, "", "npm access token"),
    token("pypi-", 40, "_-", "PyPI upload token"),
    token("hf_", 20, "", "Hugging Face token"),
    token("gsk_", 20, "_-", "Groq API key"),
    token("pplx-", 20, "_-", "Perplexity API key"),
    token("xai-", 20, "_-", "xAI API key"),
    token("r8_", 30, "", "Replicate token"),
    token("SG.", 30, "_-.", "SendGrid API key"),
    token("dop_v1_", 40, "", "DigitalOcean token"),
    token("doo_v1_", 40, "", "DigitalOcean OAuth token"),
    token("shpat_", 20, "", "Shopify access token"),
    token("shpss_", 20, "", "Shopify shared secret"),
    token("hvs.", 20, "_-", "HashiCorp Vault token"),
    token("hvb.", 20, "_-", "HashiCorp Vault batch token"),
    token("dckr_pat_", 20, "_-", "Docker Hub token"),
    token("lin_api_", 20, "", "Linear API key"),
    token("secret_", 32, "", "Notion integration secret"),
    token("ntn_", 32, "", "Notion integration token"),
    token("tskey-", 16, "_-", "Tailscale key"),
    token("cfut_", 20, "_-", "Cloudflare user token"),
    token("fo1_", 20, "_-", "Fly.io token"),
    token("sbp_", 20, "", "Supabase token"),
    token("vercel_", 20, "", "Vercel token"),
    token("glsa_", 20, "_", "Grafana service account token"),
    token("AGE-SECRET-KEY-", 30, "", "age private key"),
    token(
        "eyJhbGciOi",
        20,
        "_-.=",
        "dotted token (JWT): its first part says `{\"alg\":`",
    ),
];

/// Endings of names that mark secrets, as lower-case letters and digits.
pub(super) const SECRET_NAMES: &[(&str, &str)] = &[
    ("token", "access, refresh, id, bot and session tokens"),
    ("secret", "client, application and shared secrets"),
    ("password", "passwords"),
    ("passwd", "passwords"),
    ("passphrase", "of keys and archives"),
    ("apikey", "API keys"),
    ("accesskey", "of cloud providers"),
    ("secretkey", "of cloud providers and frameworks"),
    ("privatekey", "private keys"),
    ("signingkey", "keys that sign"),
    ("encryptionkey", "keys that encrypt"),
    ("masterkey", "keys of other keys"),
    ("authkey", "keys that admit a machine to a network"),
    ("accountkey", "Azure storage"),
    ("subscriptionkey", "Azure services"),
    ("functionskey", "Azure functions"),
    ("credential", "a login"),
    ("credentials", "a login"),
    ("mysqlpwd", "read by MySQL clients"),
    ("dbpass", "passwords of databases"),
    ("clientassertion", "stands for a client secret in OAuth"),
    ("codeverifier", "secret half of an OAuth exchange"),
    ("sessionid", "its holder is that session"),
    ("connectionstring", "holds a password"),
];

/// Whole names of fields that are too short to be endings.
pub(super) const SECRET_FIELDS: &[(&str, &str)] = &[
    ("pass", "password field"),
    ("pwd", "password field"),
    ("jwt", "a dotted token"),
    ("otp", "a one-time password"),
    ("bearer", "a bearer token"),
];

/// Names of parameters that mark a secret in the query of a URL, but may mean anything elsewhere.
pub(super) const URL_PARAMETERS: &[(&str, &str)] = &[
    ("key", "API key of Google and others"),
    ("sig", "signature of a signed URL"),
    ("signature", "signature of a signed URL"),
    ("xamzsignature", "AWS signed URL"),
    ("xgoogsignature", "Google signed URL"),
    ("auth", "a login"),
    ("code", "OAuth authorization code"),
];

/// Headers whose whole value is a secret.
pub(super) const SECRET_HEADERS: &[(&str, &str)] = &[
    ("authorization", "holds the login"),
    ("proxyauthorization", "holds the login of the proxy"),
    ("cookie", "holds sessions"),
    ("setcookie", "holds sessions"),
];

/// The word between `Authorization:` and the secret.
pub(super) const SCHEMES: &[&str] = &["bearer", "basic", "token", "apikey", "digest", "negotiate"];

/// How an option takes its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretTakes {
    /// The next word.
    Next,
    /// The part of the next word after the first `:`, or all of it after this sign.
    NextBehind(char),
    /// The rest of the same word.
    Attached,
}

/// An option that certainly takes a secret, with the programs that have the option.
pub(super) struct CertainOption {
    pub programs: &'static [&'static str],
    pub options: &'static [&'static str],
    pub takes: SecretTakes,
    #[cfg_attr(not(test), expect(dead_code, reason = "read by reviewers and tests"))]
    pub why: &'static str,
}

pub(super) const CERTAIN_OPTIONS: &[CertainOption] = &[
    CertainOption {
        programs: &["curl"],
        options: &["-u", "--user", "-U", "--proxy-user"],
        takes: SecretTakes::NextBehind(':'),
        why: "USER:PASSWORD",
    },
    CertainOption {
        programs: &["curl"],
        options: &["--oauth2-bearer", "--pass", "--proxy-pass"],
        takes: SecretTakes::Next,
        why: "a token, and passphrases of keys",
    },
    CertainOption {
        programs: &["http", "https", "xh", "xhs"],
        options: &["-a", "--auth"],
        takes: SecretTakes::NextBehind(':'),
        why: "USER:PASSWORD",
    },
    CertainOption {
        programs: &[
            "mysql",
            "mysqldump",
            "mysqladmin",
            "mariadb",
            "mariadb-dump",
            "7z",
            "7za",
        ],
        options: &["-p"],
        takes: SecretTakes::Attached,
        why: "the password stands in the same word; alone, the option asks for it",
    },
    CertainOption {
        programs: &[
            "sshpass", "mongo", "mongosh", "docker", "podman", "nerdctl", "helm",
        ],
        options: &["-p"],
        takes: SecretTakes::Next,
        why: "the password",
    },
    CertainOption {
        programs: &["redis-cli"],
        options: &["-a", "--pass"],
        takes: SecretTakes::Next,
        why: "the password",
    },
    CertainOption {
        programs: &["zip", "unzip", "mosquitto_pub", "mosquitto_sub"],
        options: &["-P"],
        takes: SecretTakes::Next,
        why: "the password",
    },
    CertainOption {
        programs: &[
            "ldapsearch",
            "ldapmodify",
            "ldapadd",
            "ldapdelete",
            "ldapwhoami",
        ],
        options: &["-w"],
        takes: SecretTakes::Next,
        why: "the password of the bind",
    },
    CertainOption {
        programs: &["openssl"],
        options: &["-pass", "-passin", "-passout"],
        takes: SecretTakes::NextBehind(':'),
        why: "pass:PASSWORD; env:, file: and fd: name where it is, and are masked alike",
    },
    CertainOption {
        programs: &["smbclient", "rpcclient", "net"],
        options: &["-U", "--user"],
        takes: SecretTakes::NextBehind('%'),
        why: "USER%PASSWORD",
    },
    CertainOption {
        programs: &["skopeo", "crane", "oras"],
        options: &["--creds", "--src-creds", "--dest-creds"],
        takes: SecretTakes::NextBehind(':'),
        why: "USER:PASSWORD",
    },
];

/// Programs that need the subcommand `login` before the option, because the option otherwise means
/// something else: `docker run -p` is a port.
pub(super) const LOGIN_ONLY: &[&str] = &["docker", "podman", "nerdctl", "helm"];

/// Programs whose `--password` and similar options take no value in the next word. Masking that
/// word would hide an argument.
pub(super) const FLAG_ONLY: &[&str] = &[
    "psql",
    "pg_dump",
    "pg_dumpall",
    "pg_restore",
    "createdb",
    "dropdb",
    "createuser",
    "dropuser",
    "vacuumdb",
    "reindexdb",
    "clusterdb",
    "pg_basebackup",
    "pgbench",
    "mysql",
    "mysqldump",
    "mysqladmin",
    "mysqlimport",
    "mysqlshow",
    "mysqlcheck",
    "mariadb",
    "mariadb-dump",
    "smbclient",
];

/// Prefixes of long options that are only switches: `--ask-password`, `--no-token`.
pub(super) const SWITCHES: &[&str] = &[
    "no-",
    "without-",
    "with-",
    "ask-",
    "use-",
    "show-",
    "prompt-",
    "skip-",
    "require-",
    "enable-",
    "disable-",
    "reset-",
    "generate-",
    "print-",
];

/// Whether secrets may contain the character, in a word that is proven literal. No character that a
/// shell acts on is included: programs pass words on to shells, and a mask must never hide code.
pub(super) fn is_secret_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_-./+=:@%~!*^".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_says_why_and_no_row_hides_another() {
        for (index, shape) in TOKENS.iter().enumerate() {
            assert!(
                !shape.why.is_empty() && shape.least >= 10,
                "{}",
                shape.prefix
            );
            let earlier = TOKENS[..index].iter();
            let hidden = earlier.filter(|other| shape.prefix.starts_with(other.prefix));
            assert_eq!(hidden.count(), 0, "{}", shape.prefix);
        }
        for (name, why) in [SECRET_NAMES, SECRET_FIELDS, URL_PARAMETERS, SECRET_HEADERS].concat() {
            let is_short = name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            assert!(is_short && !why.is_empty(), "{name}");
        }
        for row in CERTAIN_OPTIONS {
            assert!(
                !row.why.is_empty() && row.options.iter().all(|option| option.starts_with('-'))
            );
        }
    }
}
