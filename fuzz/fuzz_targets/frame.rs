#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interlock_fuzz::frame(data));
