//! Measures the cost of a patch, next to the cost of the bare work. Run with
//! `cargo bench -p interlock-patch`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write as _;
use std::fs::{self, File};

use divan::Bencher;
use interlock_patch::{ApplyOptions, Patch, ReservedPaths, apply, check};

/// All workspaces stay until the end. ext4 is slow to create files after many were deleted, so each
/// measurement would otherwise pay for the one before it.
const PLACE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/patch-bench");

fn main() {
    divan::main();
    let _ = fs::remove_dir_all(PLACE);
}

const FILES: usize = 1_000;
const LINES: usize = 100;

fn workspace() -> ApplyOptions {
    fs::create_dir_all(PLACE).unwrap();
    let place = tempfile::tempdir_in(PLACE).unwrap().keep();
    let root = place.join("w");
    fs::create_dir(&root).unwrap();
    ApplyOptions {
        root,
        workspace_only: true,
        journal_dir: place.join("journal"),
        reserved: ReservedPaths::default(),
    }
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
    use super::{
        ApplyOptions, Bencher, FILES, File, LINES, Patch, apply, content, name, workspace,
        write_files,
    };
    use std::fmt::Write as _;
    use std::io::Write as _;

    fn with_files() -> ApplyOptions {
        let options = workspace();
        write_files(&options, &content("old"));
        options
    }

    fn sync(options: &ApplyOptions) {
        rustix::fs::syncfs(File::open(&options.root).unwrap()).unwrap();
    }

    /// The baseline: the same files, written and synced once, without any guarantee.
    #[divan::bench(sample_count = 7, sample_size = 1)]
    fn update_bare(bencher: Bencher<'_, '_>) {
        let new = content("new");
        bencher
            .with_inputs(with_files)
            .bench_local_values(|options| {
                for number in 0..FILES {
                    let mut file = File::create(options.root.join(name(number))).unwrap();
                    file.write_all(new.as_bytes()).unwrap();
                }
                sync(&options);
            });
    }

    /// The same baseline with one sync per file.
    #[divan::bench(sample_count = 7, sample_size = 1)]
    fn update_bare_synced_each(bencher: Bencher<'_, '_>) {
        let new = content("new");
        bencher
            .with_inputs(with_files)
            .bench_local_values(|options| {
                for number in 0..FILES {
                    let mut file = File::create(options.root.join(name(number))).unwrap();
                    file.write_all(new.as_bytes()).unwrap();
                    file.sync_all().unwrap();
                }
            });
    }

    #[divan::bench(sample_count = 7, sample_size = 1)]
    fn update_patch(bencher: Bencher<'_, '_>) {
        let line = LINES / 2;
        let mut text = "*** Begin Patch\n".to_owned();
        for number in 0..FILES {
            write!(
                text,
                "*** Update File: {}\n@@\n-line {line} of a file: old\n",
                name(number)
            )
            .unwrap();
            writeln!(text, "+line {line} of a file: new").unwrap();
        }
        text.push_str("*** End Patch\n");
        bencher
            .with_inputs(with_files)
            .bench_local_values(|options| apply(&Patch::parse(&text).unwrap(), &options).unwrap());
    }

    fn with_directories() -> ApplyOptions {
        let options = workspace();
        for number in 0..20 {
            std::fs::create_dir(options.root.join(format!("d{number}"))).unwrap();
        }
        sync(&options);
        options
    }

    /// The baseline for new files.
    #[divan::bench(sample_count = 7, sample_size = 1)]
    fn add_bare(bencher: Bencher<'_, '_>) {
        let new = content("new");
        bencher
            .with_inputs(with_directories)
            .bench_local_values(|options| {
                for number in 0..FILES {
                    std::fs::write(options.root.join(name(number)), &new).unwrap();
                }
                sync(&options);
            });
    }

    #[divan::bench(sample_count = 7, sample_size = 1)]
    fn add_patch(bencher: Bencher<'_, '_>) {
        let lines: String = content("new")
            .lines()
            .fold(String::new(), |text, line| text + "+" + line + "\n");
        let mut text = "*** Begin Patch\n".to_owned();
        for number in 0..FILES {
            write!(text, "*** Add File: {}\n{lines}", name(number)).unwrap();
        }
        text.push_str("*** End Patch\n");
        bencher
            .with_inputs(with_directories)
            .bench_local_values(|options| apply(&Patch::parse(&text).unwrap(), &options).unwrap());
    }
}

/// Returns a file of about ten megabytes, and the text of a patch with `hunks` hunks spread over
/// it.
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
    use super::{Bencher, File, Patch, apply, check, workspace};

    /// 1,000 hunks in a file of 10 MB. The time must be proportional to the number of hunks.
    #[divan::bench(args = [250, 500, 1_000, 2_000], sample_count = 10, sample_size = 1)]
    fn hunks(bencher: Bencher<'_, '_>, hunks: usize) {
        let options = workspace();
        let text = super::large_file(&options, hunks, true);
        bencher.bench_local(|| check(&Patch::parse(&text).unwrap(), &options).unwrap());
    }

    #[divan::bench(args = [250, 500, 1_000, 2_000], sample_count = 10, sample_size = 1)]
    fn hunks_by_tolerance(bencher: Bencher<'_, '_>, hunks: usize) {
        let options = workspace();
        let text = super::large_file(&options, hunks, false);
        bencher.bench_local(|| check(&Patch::parse(&text).unwrap(), &options).unwrap());
    }

    #[divan::bench(sample_count = 5, sample_size = 1)]
    fn applied(bencher: Bencher<'_, '_>) {
        bencher
            .with_inputs(|| {
                let options = workspace();
                let text = super::large_file(&options, 1_000, true);
                rustix::fs::syncfs(File::open(&options.root).unwrap()).unwrap();
                (options, text)
            })
            .bench_local_values(|(options, text)| {
                apply(&Patch::parse(&text).unwrap(), &options).unwrap()
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
