#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    interlock_fuzz::pass_over_caught_panics();
    interlock_fuzz::analysis(data);
});
