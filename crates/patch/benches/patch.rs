//! What a patch costs, next to what the bare work costs. Run with `cargo bench -p interlock-patch`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;

use divan::Bencher;
use interlock_patch::{ApplyOptions, Patch, apply, check};

fn main() {
    divan::main();
}

const FILES: usize = 1_000;
const LINES: usize = 100;

fn workspace() -> (tempfile::TempDir, ApplyOptions) {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("w");
    fs::create_dir(&root).unwrap();
    let journal_dir = temp.path().join("journal");
    (
        temp,
        ApplyOptions {
            root,
            workspace_only: true,
            journal_dir,
        },
    )
}

fn content(word: &str) -> String {
    (0..LINES).fold(String::new(), |mut text, line| {
        writeln!(
            text,
            "line {line} of a file: {}",
            if line == LINES / 2 { word } else { "stays" }
        )
        .unwrap();
        text
    })
}

fn name(number: usize) -> String {
    format!("d{}/file{number}.txt", number % 20)
}

fn write_files(options: &ApplyOptions, content: &str) {
    for number in 0..FILES {
        let path = options.root.join(name(number));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    rustix::fs::syncfs(File::open(&options.root).unwrap()).unwrap();
}

mod thousand_files {
    use super::*;

    /// The yardstick: the same files written and synced, without any guarantee.
    #[divan::bench(sample_count = 20, sample_size = 1)]
    fn bare_write_and_sync(bencher: Bencher<'_, '_>) {
        let (_temp, options) = workspace();
        write_files(&options, &content("old"));
        let new = content("new");
        bencher.bench_local(|| {
            for number in 0..FILES {
                let mut file = File::create(options.root.join(name(number))).unwrap();
                file.write_all(new.as_bytes()).unwrap();
            }
            rustix::fs::syncfs(File::open(&options.root).unwrap()).unwrap();
        });
    }

    /// The same with one sync per file.
    #[divan::bench(sample_count = 3, sample_size = 1)]
    fn bare_write_and_sync_each(bencher: Bencher<'_, '_>) {
        let (_temp, options) = workspace();
        write_files(&options, &content("old"));
        let new = content("new");
        bencher.bench_local(|| {
            for number in 0..FILES {
                let mut file = File::create(options.root.join(name(number))).unwrap();
                file.write_all(new.as_bytes()).unwrap();
                file.sync_all().unwrap();
            }
        });
    }

    #[divan::bench(sample_count = 20, sample_size = 1)]
    fn patch_update(bencher: Bencher<'_, '_>) {
        let (_temp, options) = workspace();
        write_files(&options, &content("old"));
        let flip = |from: &str, to: &str| {
            let line = LINES / 2;
            let mut text = "*** Begin Patch\n".to_owned();
            for number in 0..FILES {
                write!(
                    text,
                    "*** Update File: {}\n@@\n-line {line} of a file: {from}\n",
                    name(number)
                )
                .unwrap();
                writeln!(text, "+line {line} of a file: {to}").unwrap();
            }
            text + "*** End Patch\n"
        };
        let mut patches = [flip("old", "new"), flip("new", "old")].into_iter().cycle();
        bencher.bench_local(|| {
            apply(&Patch::parse(&patches.next().unwrap()).unwrap(), &options).unwrap()
        });
    }

    #[divan::bench(sample_count = 20, sample_size = 1)]
    fn patch_add(bencher: Bencher<'_, '_>) {
        let lines: String = content("new")
            .lines()
            .fold(String::new(), |text, line| text + "+" + line + "\n");
        let mut text = "*** Begin Patch\n".to_owned();
        for number in 0..FILES {
            write!(text, "*** Add File: {}\n{lines}", name(number)).unwrap();
        }
        text.push_str("*** End Patch\n");
        bencher
            .with_inputs(workspace)
            .bench_local_values(|(temp, options)| {
                (
                    apply(&Patch::parse(&text).unwrap(), &options).unwrap(),
                    temp,
                )
            });
    }
}

/// A file of about ten megabytes and the text of a patch with `hunks` hunks spread over it.
fn large_file(options: &ApplyOptions, hunks: usize, indented: bool) -> String {
    let lines = 200 * hunks;
    let mut file = String::new();
    let mut text = "*** Begin Patch\n*** Update File: large\n".to_owned();
    for line in 0..lines {
        writeln!(file, "    line {line:>8} {:-<36}", "").unwrap();
        if line % 200 == 100 {
            // Written without indentation, the line only matches in a tolerant stage.
            let indent = if indented { "    " } else { "" };
            writeln!(
                text,
                "@@\n-{indent}line {line:>8} {:-<36}\n+changed {line}",
                ""
            )
            .unwrap();
        }
    }
    fs::write(options.root.join("large"), file).unwrap();
    text + "*** End Patch\n"
}

mod large_file {
    use super::*;

    /// 1,000 hunks: a file of 10 MB. The time must grow like the number of hunks.
    #[divan::bench(args = [250, 500, 1_000, 2_000], sample_count = 10, sample_size = 1)]
    fn hunks(bencher: Bencher<'_, '_>, hunks: usize) {
        let (_temp, options) = workspace();
        let text = super::large_file(&options, hunks, true);
        bencher.bench_local(|| check(&Patch::parse(&text).unwrap(), &options).unwrap());
    }

    #[divan::bench(args = [250, 500, 1_000, 2_000], sample_count = 10, sample_size = 1)]
    fn hunks_by_tolerance(bencher: Bencher<'_, '_>, hunks: usize) {
        let (_temp, options) = workspace();
        let text = super::large_file(&options, hunks, false);
        bencher.bench_local(|| check(&Patch::parse(&text).unwrap(), &options).unwrap());
    }

    #[divan::bench(sample_count = 5, sample_size = 1)]
    fn applied(bencher: Bencher<'_, '_>) {
        bencher
            .with_inputs(|| {
                let (temp, options) = workspace();
                let text = super::large_file(&options, 1_000, true);
                rustix::fs::syncfs(File::open(&options.root).unwrap()).unwrap();
                (temp, options, text)
            })
            .bench_local_values(|(temp, options, text)| {
                (
                    apply(&Patch::parse(&text).unwrap(), &options).unwrap(),
                    temp,
                )
            });
    }
}

/// The largest patch that is read.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn parse_sixteen_megabytes(bencher: Bencher<'_, '_>) {
    let line = "+a line of an added file, of usual length\n";
    let text = "*** Begin Patch\n*** Add File: a\n".to_owned()
        + &line.repeat(16 * 1024 * 1024 / line.len() - 2)
        + "*** End Patch";
    bencher.bench_local(|| Patch::parse(&text).unwrap());
}
