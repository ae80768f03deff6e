//! Suggests a known word for a misspelled one.

/// The nearest known word, if it is near enough that `word` is probably a typing error.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let distance =
        |candidate: &&str| strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
    let slips = (lower.chars().count() / 3).clamp(1, 3);
    // A word without a common letter is no typing error, even if it is short.
    known
        .filter(|candidate| {
            !lower.is_empty()
                && distance(candidate) <= slips
                && distance(candidate) < candidate.len()
        })
        .min_by_key(distance)
}
