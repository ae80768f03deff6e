//! Benchmarks with parts. All parts are measured, or the one that the command line names.

/// A part of a benchmark, with its name.
pub type BenchPart<B> = (&'static str, fn(&B));

/// Measures the parts in order. A name on the command line selects a single part.
pub fn measure_parts<B>(bench: &B, parts: &[BenchPart<B>]) {
    // Cargo adds flags of its own.
    let only = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with("--"));
    for (name, measure) in parts {
        if only.as_deref().is_none_or(|only| only == *name) {
            measure(bench);
        }
    }
}
