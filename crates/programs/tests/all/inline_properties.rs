//! What holds for every argv.

use interlock_programs::inline::{
    detect, detect_through_carriers, is_inline_capable_pattern, is_interpreter_like_safe_bin,
};
use interlock_programs::names::program_name;
use proptest::prelude::*;

/// Programs and arguments of interest among arbitrary text, so that tables are reached.
fn argument() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "python3",
        "perl",
        "ruby",
        "sed",
        "awk",
        "find",
        "xargs",
        "git",
        "tar",
        "env",
        "sudo",
        "sh",
        "command",
        "exec",
        "vim",
        "gcc",
        "go",
        "sqlite3",
        "-c",
        "-e",
        "-S",
        "-lc",
        "--",
        "-",
        "--x",
        "-exec",
        "-0777pe",
        "-i",
        "--eval=x",
        "cfI",
        "s/[/x/e",
        "a\\",
        "$0 \"$@\"",
        "\"$@\"",
        "python3 -c",
        "'",
        "ext::x",
        "config",
        "A=b",
        "-Xü",
        "-ü",
        "--ü=ü",
        "+é",
        "@",
    ]);
    prop_oneof![3 => known.prop_map(str::to_owned), 1 => any::<String>(), 1 => "-[a-zA-Z0-9é]{1,6}"]
}

proptest! {
    #[test]
    fn any_argv_is_read_without_panic_and_always_alike(
        argv in prop::collection::vec(argument(), 0..10),
    ) {
        let hit = detect(&argv);
        prop_assert_eq!(&hit, &detect(&argv));
        prop_assert!(hit.is_none_or(|hit| hit.arg_index > 0 && hit.arg_index < argv.len()));
        let carried = detect_through_carriers(&argv);
        prop_assert_eq!(&carried, &detect_through_carriers(&argv));
        prop_assert!(carried.is_none_or(|hit| hit.arg_index < argv.len()));
    }

    #[test]
    fn a_carrier_in_front_hides_nothing(
        argv in prop::collection::vec(argument(), 1..8),
        carrier in prop::sample::select(vec![
            &["env"][..], &["sudo"], &["doas"], &["command"], &["builtin"], &["exec"], &["env", "--"],
            &["sudo", "-n", "-u", "root", "--"], &["env", "-i", "-u", "A"], &["exec", "-a", "x"],
        ]),
    ) {
        // A name that the carrier itself would read differently is no program to be carried.
        prop_assume!(!argv[0].starts_with('-') && !argv[0].contains('='));
        let mut carried: Vec<String> = carrier.iter().map(|&word| word.to_owned()).collect();
        carried.extend(argv.iter().cloned());
        let mut expected = detect_through_carriers(&argv);
        if let Some(hit) = &mut expected {
            hit.arg_index += carrier.len();
        }
        prop_assert_eq!(detect_through_carriers(&carried), expected);
    }

    #[test]
    fn any_sed_program_is_read_without_panic(program in "([sye/\\[\\]{};:\\\\a-e0-9!$~, \nwWrR#é])*") {
        let _ = detect(&["sed", &program]);
    }

    #[test]
    fn names_and_patterns_are_read_without_panic(text in any::<String>(), glob in "[a-z*?\\[\\]{}./0-9é]*") {
        let name = program_name(&text);
        prop_assert_eq!(program_name(&text), name);
        let _ = is_interpreter_like_safe_bin(&text);
        let _ = is_inline_capable_pattern(&glob);
    }
}
