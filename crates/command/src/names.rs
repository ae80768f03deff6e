//! Program names as the tables compare them.

/// The basename in lower case, without the endings that Windows programs carry. For tables that
/// only tighten (wrappers, shells, inline code, opaque programs); trust never goes by basename.
pub fn program_name(token: &str) -> String {
    let base = token.rsplit(['/', '\\']).next().unwrap_or(token);
    let mut name = base.to_lowercase();
    for ending in [".exe", ".cmd", ".bat", ".com"] {
        if let Some(stem) = name.strip_suffix(ending)
            && !stem.is_empty()
        {
            name.truncate(stem.len());
            break;
        }
    }
    name
}
