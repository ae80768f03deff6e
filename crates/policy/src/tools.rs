//! Tool policy: which tools an agent may call at all.
//!
//! Each level (global, agent, gateway) can only restrict. A tool is open if no level denies it and
//! every level with an allow list names it.

/// One level: `tools.allow` and `tools.deny` of the config.
#[derive(Debug, Clone, Copy)]
pub struct ToolLevel<'a> {
    /// `None` means no restriction. An empty list allows nothing.
    pub allow: Option<&'a [String]>,
    pub deny: &'a [String],
    /// Where the level is written, such as `agents.list[0].tools`.
    pub path: &'a str,
}

/// Why a tool is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolRefusal {
    #[error("the tool `{tool}` is denied by `{item}` in {path}.deny")]
    Denied {
        tool: String,
        item: String,
        path: String,
    },
    #[error("the tool `{tool}` is not named in {path}.allow")]
    NotAllowed { tool: String, path: String },
}

/// Names for several tools.
const GROUPS: &[(&str, &[&str])] = &[
    ("group:fs", &["read", "write", "edit", "apply_patch"]),
    ("group:runtime", &["exec", "bash", "process"]),
];

/// Tools that another tool implies: an agent that may write files may patch them.
const IMPLIED: &[(&str, &str)] = &[("write", "apply_patch")];

/// Whether the tool may be called.
pub fn check_tool(tool: &str, levels: &[ToolLevel<'_>]) -> Result<(), ToolRefusal> {
    let tool = tool.to_ascii_lowercase();
    for level in levels {
        if let Some(item) = level.deny.iter().find(|item| names(item, &tool)) {
            return Err(ToolRefusal::Denied {
                tool,
                item: item.clone(),
                path: level.path.to_owned(),
            });
        }
    }
    for level in levels {
        let implied = |item: &String| {
            let pairs = IMPLIED.iter().filter(|(_, other)| *other == tool);
            pairs.into_iter().any(|(by, _)| names(item, by))
        };
        let closed = level
            .allow
            .is_some_and(|allow| !allow.iter().any(|item| names(item, &tool) || implied(item)));
        if closed {
            return Err(ToolRefusal::NotAllowed {
                tool,
                path: level.path.to_owned(),
            });
        }
    }
    Ok(())
}

/// Whether the item, which is a tool's name, a group or `*`, includes the tool.
fn names(item: &str, tool: &str) -> bool {
    let item = item.trim().to_ascii_lowercase();
    item == "*"
        || item == tool
        || GROUPS
            .iter()
            .any(|(group, tools)| *group == item && tools.contains(&tool))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tool: &str, allow: Option<&[&str]>, deny: &[&str]) -> bool {
        let own = |list: &[&str]| {
            list.iter()
                .map(|item| (*item).to_owned())
                .collect::<Vec<_>>()
        };
        let (allow, deny) = (allow.map(own), own(deny));
        let level = ToolLevel {
            allow: allow.as_deref(),
            deny: &deny,
            path: "tools",
        };
        check_tool(tool, &[level]).is_ok()
    }

    #[test]
    fn an_agent_that_may_write_may_patch() {
        assert!(check("apply_patch", Some(&["write"]), &[]));
        assert!(!check("apply_patch", Some(&["exec"]), &[]));
        assert!(!check("apply_patch", Some(&["read"]), &[]));
        assert!(check("apply_patch", Some(&["group:fs"]), &[]));
    }

    #[test]
    fn denying_write_does_not_deny_patching_but_its_group_does() {
        assert!(check("apply_patch", None, &["write"]));
        assert!(!check("apply_patch", None, &["apply_patch"]));
        assert!(!check("apply_patch", None, &["group:fs"]));
        assert!(!check("apply_patch", None, &["*"]));
    }

    #[test]
    fn denial_wins_and_an_empty_list_allows_nothing() {
        assert!(!check("exec", Some(&["exec"]), &["group:runtime"]));
        assert!(!check("exec", Some(&[]), &[]));
        assert!(check("exec", None, &[]));
        assert!(check("Exec", Some(&["EXEC"]), &[]));
    }

    #[test]
    fn every_level_must_agree() {
        let list = vec!["exec".to_owned()];
        let open = ToolLevel {
            allow: None,
            deny: &[],
            path: "tools",
        };
        let only_exec = ToolLevel {
            allow: Some(&list),
            deny: &[],
            path: "agents.list[0].tools",
        };
        assert!(check_tool("exec", &[open, only_exec]).is_ok());
        assert_eq!(
            check_tool("process", &[open, only_exec]),
            Err(ToolRefusal::NotAllowed {
                tool: "process".to_owned(),
                path: "agents.list[0].tools".to_owned()
            })
        );
    }
}
