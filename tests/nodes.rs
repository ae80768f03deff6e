#[test] fn empty() {}
