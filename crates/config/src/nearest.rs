//! What a writer may have meant.

/// The nearest of the known words, if it is near enough to be a slip of the fingers.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let distance =
        |candidate: &&str| strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
    let slips = (lower.chars().count() / 3).clamp(1, 3);
    // A word with no letter in common is not a slip, however short it is.
    known
        .filter(|candidate| {
            !lower.is_empty()
                && distance(candidate) <= slips
                && distance(candidate) < candidate.len()
        })
        .min_by_key(distance)
}
